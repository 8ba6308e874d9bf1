"""The package as a program uses it: made, written, read and built from Python."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path, PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from roost.base.errors import ConfigError, NotFound, Refused
from roost.config import layers
from roost.config.layers import Config, Layer
from roost.package import package as stored
from roost.package import package_name
from roost.package.checkpoints import checkpoint
from roost.package.package_draft import PackageDraft, prepare_python, prepare_training
from roost.project.package_writer import STATE, Writing

if TYPE_CHECKING:
    from roost.project.contract import Runner


class Package(stored.PackageFolder):
    """The folder of one run, from Python.

    ```
    with roost.Package.new({"lr": 0.1, "checkpoint": {"fast": 3}}, root="runs") as run:
        for step in range(1, 1001):
            ...
            if step % 100 == 0:
                run.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, step=step)

    run = roost.Package.open(path)                  # reads, at any time, also while somebody writes
    state = run.load(device="cuda")                 # the newest; run.load(3): that one
    model = run.load_model()                        # a package of `roost run`: its Runner, by its own code
    ```

    Only inside of ``with`` may it be written. The first write there takes the package's lock and begins a
    session, which ends with the block. One thread writes; torch is imported by what needs it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._writing: Writing | None = None

    @classmethod
    def new(
        cls,
        config: Path | str | Mapping[str, Any],
        *,
        root: Path | str | None = None,
        name: str | None = None,
        description: str | None = None,
        copy: bool = True,
    ) -> Self:
        """Makes a package. Nothing is ever overwritten: a name that is taken gets a suffix.

        Args:
            config: A file, read with all that it includes; or the settings themselves, without files. A
                config that names a Runner is checked as `roost run` does, and `roost continue` trains it. Of
                any other, roost reads ``save_root``, ``description`` and ``checkpoint``.
            root: The folder that takes it; None: ``save_root`` of the config.
            name: The folder's name; None: the time.
            description: A few words; they become a marker file.
            copy: Whether to copy the folder of the config's file, as `roost run` does.

        Raises:
            NotFound: There is no such file.
            ConfigError: The config is wrong.
            UsageError: The name or the description makes no folder name.
            OSError: It cannot be written; what was made is removed.
        """
        if name is not None:
            package_name.checked_name(name, setting="name")
        prepared = _prepared(config, Path(root).expanduser() if root is not None else None, description, copy)
        made = cls(prepared.create(name, command=sys.argv).path)
        for line in prepared.left_out():
            warnings.warn(line, stacklevel=2)
        return made

    # ---- reading ------------------------------------------------------------------------------------------

    @property
    def current(self) -> int | None:
        """The id of the checkpoint that the run goes on from; None when there is none."""
        line = self.store().lineage()
        return line[-1].id if line else None

    def load(self, id: int | None = None, *, device: str = "cpu") -> Any:
        """What `save` was given; of a trainer's checkpoint its parts by name.

        It reads only. Every byte is compared with what was written; where the newest is damaged, that is said
        by a warning, and the one before it is given.

        Args:
            id: Which; None: the newest of the run's line.
            device: Where tensors go: cpu, cuda, cuda:1, auto, … Tied ones stay one.

        Raises:
            NotFound: There is no such checkpoint, or none at all.
            CheckpointError: It is damaged, or all are.
            Refused: This machine lacks the device.
        """
        from roost.project.device_choice import choose_device  # torch

        where = choose_device(device)
        store = self.store()

        def read(path: Path) -> dict[str, Any]:
            return checkpoint.read(path, device=where)[1]

        if id is not None:
            return _given(read(store.path(id)))
        found, said = store.newest_readable(read)
        for line in said:
            warnings.warn(line, stacklevel=2)
        if found is None:
            raise NotFound("the package has no checkpoint yet", where=self.path, fix="ask `current` first")
        return _given(found)

    def load_model(
        self,
        *,
        checkpoint: int | None = None,
        device: str = "auto",
        info: Mapping[str, Any] | None = None,
    ) -> Runner:
        """The package's Runner, built by its own code, with the weights of a checkpoint, in evaluation mode.

        The working folder, ``sys.path``, modules and random generators are as before when this returns. So
        packages whose modules have the same names go side by side; but what the Runner imports later, while
        it runs, is not found: import at the top of the file.

        Args:
            checkpoint: Whose weights; None: the newest of the run's line whose bytes are good.
            device: auto, cpu, cuda, cuda:1, …
            info: What the Runner gets as ``self.info``; None: what the Dataset says, which is built for that,
                so its data must be there.

        Raises:
            NotFound: There is no such checkpoint, or none at all.
            CheckpointError: It is damaged, or does not fit the Runner.
            ConfigError: A setting or a class path is wrong.
            ContractError: The Runner does not keep the contract.
            Refused: The package has none, or this machine lacks the device.
            Exception: Whatever the project's code raises.
        """
        from roost.project.loaded_model import load_experiment
        from roost.project.package_context import inside  # torch

        with inside(self):
            loaded = load_experiment(self, checkpoint=checkpoint, device=device, info=info)
        for line in loaded.notes:
            warnings.warn(line, stacklevel=2)
        return loaded.runner

    # ---- writing ------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._writing is not None:
            raise Refused("the package is open for writing already", where=self.path, fix="use that `with`")
        self._writing = Writing(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        writing, self._writing = self._writing, None
        assert writing is not None
        writing.end(error)

    def _open(self) -> Writing:
        if self._writing is None:
            raise Refused(
                "the package is not open for writing",
                where=self.path,
                fix="write inside of `with roost.open_package(path) as run:`",
            )
        return self._writing

    def save(
        self,
        state: Any,
        *,
        hold: bool = False,
        step: int | None = None,
        epoch: int | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> int:
        """Saves durably as one checkpoint: when this returns it stands. Then what no track of the settings'
        ``checkpoint`` keeps is removed.

        What `load` gave of a trainer's checkpoint may be changed and saved, whole; `roost continue` goes on
        from that, and it is recorded as inexact.

        Args:
            state: Any nest of plain values, arrays and tensors; tied tensors are kept as one.
            hold: Put it into the held track.
            step: Where the run is; None: one more than the checkpoint before.
            epoch: Likewise; None: 0.
            metrics: What was measured at this step: for the best track, and recorded as a row.

        Returns:
            Its id.

        Raises:
            Refused: Outside of ``with``, in use by somebody else, in a forked process, or not what this
                package can go on from.
            CheckpointError: The state holds something that cannot be saved.
            OSError: It could not be written; the older checkpoints are untouched.
        """
        return self._open().save(state, hold=hold, step=step, epoch=epoch, metrics=metrics or {}).id

    def set_current(self, id: int) -> None:
        """From now on the run goes on from checkpoint ``id``: `save`, and `roost continue` too. What came
        after it stays on the disk, and is neither the newest nor the best any more.

        Raises:
            NotFound: There is no such checkpoint.
            CheckpointError: It is damaged.
            Refused: As `save`.
            OSError: It cannot be written down.
        """
        self._open().go_on_from(id)


def open_package(path: Path | str) -> Package:
    """Opens the package at ``path``, to read it, or with ``with`` to write.

    Raises:
        NotFound: There is none.
    """
    return Package.open(path)


def _given(states: dict[str, Any]) -> Any:
    return states[STATE] if list(states) == [STATE] else states


def _prepared(
    config: Path | str | Mapping[str, Any], root: Path | None, description: str | None, copy: bool
) -> PackageDraft:
    if isinstance(config, Mapping):
        values = _plain(config)
        made = Config(Path.cwd() / "settings", values, [], (Layer("given from Python", values),))
        return prepare_python(made, copy=False, root=root, description=description)
    loaded = layers.load(config)
    if copy and loaded.values.get("runner") is not None:
        return prepare_training(loaded, root=root, description=description)
    return prepare_python(loaded, copy=copy, root=root, description=description)


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as JSON can hold them.

    Raises:
        ConfigError: One is an object of another kind.
    """

    def converted(value: Any) -> Any:
        if isinstance(value, PurePath):
            return str(value)
        if callable(getattr(value, "tolist", None)):  # arrays, tensors, NumPy's numbers
            return value.tolist()
        raise NotImplementedError

    made = {}
    for key, value in config.items():
        try:
            made[str(key)] = msgspec.to_builtins(value, enc_hook=converted, str_keys=True)
        except (NotImplementedError, TypeError, ValueError, RecursionError) as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            fix = "give numbers, texts, lists and dicts"
            raise ConfigError(
                f"holds what settings cannot: {error or kind}", setting=str(key), fix=fix
            ) from None
    return made
