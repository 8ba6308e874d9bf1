"""`roost.init`: a package for a training loop of the user's own."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from roost.base import durable
from roost.base.errors import CheckpointError, NotFound, Refused, UsageError
from roost.config.values import nested_values
from roost.operations.python_api import package_api
from roost.operations.python_api.package_api import Package
from roost.package import package_name
from roost.package.kinds import PackageKind
from roost.package.package_draft import PackageDraft
from roost.package.resume import resume_gate
from roost.project.package_writer import STATE, PackageWriter, checked_count

if TYPE_CHECKING:
    from roost.train.data.resumable_batches import ResumableBatches
    from roost.train.progress import Progress

_OBJECTS, _LOADERS, _RNG, _STEP = "objects", "loaders", "rng", "step"
"""The keys of a saved state."""
_MAX_DIFFERENCES = 5
_open_runs: dict[Path, ScriptRun] = {}
"""The runs of this process that have not ended, by their package."""


def init(
    config: Path | str | Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    root: Path | str | None = None,
    description: str | None = None,
    copy: bool = False,
) -> ScriptRun:
    """Opens a package for a training loop of the user's own, and begins a session in this process.

    ```
    run = roost.init({"lr": 0.1, "seed": 0}, name="digits")
    batches = run.resumable(DataLoader(...))
    run.load_checkpoint(model=model, optimizer=optimizer)
    for epoch in range(batches.epoch, 10):
        for images, labels in batches:
            ...
            run.log({"loss": loss})
        run.save_checkpoint(model=model, optimizer=optimizer)
    run.finish()
    ```

    The same call with the same ``name`` continues the package; in a notebook, where the cell is run again, it
    ends the run before. A setting ``seed``, a whole number, seeds the
    global generators of torch, NumPy and Python. Of several ranks only one may call this.

    Args:
        config: The settings: a mapping, or a config file; None: none. Of them, roost reads ``save_root``,
            ``description``, ``checkpoint`` and ``seed``.
        name: The package's name; None: the time, and the package is new.
        root: The folder that contains the package; None: the setting ``save_root``, by default ``runs``.
        description: A few words about the run.
        copy: Whether to copy the folder of the config file into the package.

    Raises:
        NotFound: There is no such config file.
        ConfigError: The config is wrong.
        UsageError: The name or the description is not a valid folder name; ``config`` is none of these; or
            its ``seed`` is no whole number.
        Refused: The package of this name has other settings, is of another kind, or is in use.
        CheckpointError: All its checkpoints are damaged.
        OSError: The package cannot be written.
    """
    if name is not None:
        package_name.checked_name(name, setting="name")
    if not (config is None or isinstance(config, Path | str | Mapping)):
        fix = "give a dict, such as vars(args) of argparse, or the path of a config"
        raise UsageError("is no mapping", setting="config", received=type(config).__name__, fix=fix)
    given: Path | str | Mapping[str, Any] = {} if config is None else config
    prepared = package_api.draft(given, None, None, package_api.expanded(root), description, copy)
    if prepared.kind is not PackageKind.PYTHON:
        fix = "train it with `roost run`, or give settings without a Runner"
        raise UsageError("this config names a Runner", setting="config", received=str(config), fix=fix)
    return ScriptRun(_opened(prepared, name), seed=_checked_seed(prepared.config.values.get("seed")))


def _checked_seed(given: Any) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    fix = "give a whole number, or none: then no generator is seeded"
    raise UsageError("is no whole number", setting="seed", received=given, fix=fix)


def _opened(prepared: PackageDraft, name: str | None) -> Package:
    """Returns the package of this name, which is made if there is none."""
    from roost.operations.lifecycle.run import locked_root  # with the queue

    if name is None:
        return Package(prepared.create(None, command=sys.argv).path)
    prepared.require_writable()
    with locked_root(prepared.root):
        if os.path.lexists(path := prepared.root / name):
            return _existing(path, prepared.config.values)
        return Package(prepared.create(name, exactly=True, command=sys.argv).path)


def _existing(path: Path, values: Mapping[str, Any]) -> Package:
    """Returns the package at ``path``, if it is one of a loop with these settings."""
    from roost.operations.reading import package_schema  # with the queue

    fix = "choose another name"
    try:
        package = Package.open(path)
    except NotFound as error:
        raise Refused("a file or folder that is no package has this name", where=path, fix=fix) from error
    package_schema.require_changeable(path)
    if PackageKind.of(package.request) is not PackageKind.PYTHON:
        raise Refused("the package of this name is not of a loop of your own", where=path, fix=fix)
    different = [
        resume_gate.format_difference(one) for one in nested_values.differences(package.args, values)
    ]
    if different:
        more = f"; … {len(different)} in all" if len(different) > _MAX_DIFFERENCES else ""
        raise Refused(
            f"the package of this name has other settings: {'; '.join(different[:_MAX_DIFFERENCES])}{more}",
            where=path,
            fix="choose another name, or give the settings that it has",
        )
    if _is_interactive() and (earlier := _open_runs.get(path.absolute())) is not None:
        earlier._end(None, is_done=False)  # the cell with `init` is run again
    return package


class ScriptRun:
    """The run of a training loop of the user's own; `init` makes it.

    Its session ends with `finish`, with the ``with`` block, or with the program: one that ends without
    `finish` has stopped, and the same `init` continues it. Several threads may log; of several processes
    only the one that called `init` may.

    Args:
        package: A package of a loop of the user's own.
        seed: The seed of the global generators; None: they are left as they are.

    Attributes:
        package: The package, to read.
        step: The step of the newest row or checkpoint; 0 before the first.
    """

    def __init__(self, package: Package, *, seed: int | None = None) -> None:
        from roost.train.step import seeding  # torch

        self.package, self.step = package, 0
        self._seed = seed
        self._lock = threading.RLock()
        """Held while a row or a checkpoint is written: loops log from threads, too."""
        self._loaders: list[ResumableBatches] = []
        self._loader_states: list[Any] = []
        """The positions of the loaded checkpoint, in the order of `resumable`."""
        self._writer = PackageWriter(package)
        self._is_open = True
        try:
            self._checkpoints = self._writer.checkpoints()
        except BaseException as error:
            self._writer.end(error)
            raise
        self._parent = self._checkpoints.newest
        """The checkpoint from which this session must continue; None without one, or once it is loaded."""
        if self._seed is not None:
            seeding.seed_all(self._seed)
        atexit.register(self._end_with_program)
        _open_runs[package.path.absolute()] = self

    def __repr__(self) -> str:
        return f"ScriptRun({str(self.package.path)!r}, step {self.step})"

    def _repr_html_(self) -> str:
        return self.package._repr_html_()

    @property
    def path(self) -> Path:
        """The folder of the package."""
        return self.package.path

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from that of the run, which alone may write."""
        return not self._writer.is_of_this_process

    def log(self, metrics: Mapping[str, Any], *, step: int | None = None) -> None:
        """Records metrics, for `roost ls`, `plot` and `compare`. Rows after the newest checkpoint do not
        count once the run has continued from it.

        Args:
            metrics: Numbers, or tensors with one element, by name, such as ``train/loss``.
            step: The step; None: one more than the row before.

        Raises:
            UsageError: The metrics are no mapping.
            Refused: A metric is no number; the step is below the one before; a checkpoint of this run was
                not loaded; the run has ended; or in a forked process.
            OSError: The row could not be written; it is kept and written with the next one.
        """
        self._require_open()
        self._require_loaded()
        if not isinstance(metrics, Mapping):
            fix = "give numbers by name: run.log({'loss': loss})"
            raise UsageError("are no mapping", setting="metrics", received=type(metrics).__name__, fix=fix)
        with self._lock:
            found = self._checked_step(step, self.step + 1)
            self._writer.log(self._progress(found), metrics)
            self.step = found

    def log_media(self, media: Mapping[str, Any], *, step: int | None = None) -> None:
        """Stores matplotlib figures, strings or `roost.Media` by name in the package, in ``media/<step>/``.

        Args:
            media: What is shown, by name. The same name at the same step replaces the file.
            step: The step, earlier ones too; None: that of the newest row.

        Raises:
            ContractError: A value cannot be shown, or a name is not valid for a file.
            Refused: The step is no whole number from 0 on; or as in `log`.
            OSError: A file could not be written.
        """
        from roost.train.reporting import media_files  # torch

        self._require_open()
        self._require_loaded()
        found = checked_count("step", step)
        files = media_files.encode_named(media, setting="log_media()")
        folder = self.path / "media" / str(self.step if found is None else found)
        durable.make_folders(folder, below=self.path)
        for name, data in files.items():
            durable.write(folder / name, data)

    def resumable(self, loader: Any) -> ResumableBatches:
        """Returns the batches of a loader, whose position is saved with each checkpoint and restored by
        `load_checkpoint`. Call it for the same loaders in the same order in each session.

        Args:
            loader: `roost.Loader`, which continues at no cost; or torch's DataLoader, which is iterated again
                up to the position unless it has a ``state_dict``.

        Raises:
            Refused: The object is no loader.
        """
        from roost.train.data.resumable_batches import ResumableBatches  # torch

        made = ResumableBatches(loader, seed=self._seed or 0)
        if len(self._loaders) < len(self._loader_states):
            made.load_state_dict(self._loader_states[len(self._loaders)])
        self._loaders.append(made)
        return made

    def save_checkpoint(
        self, *, step: int | None = None, metrics: Mapping[str, Any] | None = None, **objects: Any
    ) -> int:
        """Saves objects, the positions of the loaders of `resumable`, and the global generators of torch,
        NumPy and Python as one checkpoint, durable when this returns. The setting ``checkpoint`` says which
        ones stay.

        Args:
            step: The step; None: that of the newest row.
            metrics: Metrics at this step, for the best track; they are also recorded as a row.
            objects: Objects with ``state_dict`` by name, for example ``model=model``.

        Returns:
            The id of the checkpoint.

        Raises:
            UsageError: An object has no ``state_dict``, or none is given.
            Refused: As in `log`.
            CheckpointError: A state holds an object that cannot be saved.
            OSError: The checkpoint could not be written; the older ones are unchanged.
        """
        self._require_open()
        self._require_loaded()
        _require_methods(objects, "state_dict")
        with self._lock:
            return self._save(step, metrics or {}, objects)

    def _save(self, step: int | None, metrics: Mapping[str, Any], objects: Mapping[str, Any]) -> int:
        from roost.train.step import seeding

        found = self._checked_step(step, self.step)
        state = {
            _OBJECTS: {name: one.state_dict() for name, one in objects.items()},
            _LOADERS: [one.state_dict() for one in self._loaders],
            _RNG: seeding.rng_state(),
            _STEP: found,
        }
        epoch = self._progress(found).epoch
        made = self._writer.save(state, hold=False, step=found, epoch=epoch, metrics=metrics)
        self.step = found
        return made.id

    def load_checkpoint(self, **objects: Any) -> int:
        """Restores the newest checkpoint of the run: the objects, the positions of the loaders of
        `resumable`, and the global generators. Call it once, when everything is built, before the loop.

        Args:
            objects: Objects with ``load_state_dict``, by the names of `save_checkpoint`.

        Returns:
            The step of the checkpoint; 0 without one: then nothing is changed.

        Raises:
            UsageError: An object has no ``load_state_dict``, or none is given.
            CheckpointError: The checkpoint has other objects, or a state does not fit.
            Refused: The run has ended.
        """
        from roost.package.checkpoints import checkpoint
        from roost.train.step import seeding

        self._require_open()
        _require_methods(objects, "load_state_dict")
        if self._parent is None:
            return self.step
        _, parts = checkpoint.read(self.package.store().path(self._parent.id))
        state = parts.get(STATE)
        if not isinstance(state, Mapping) or set(state) != {_OBJECTS, _LOADERS, _RNG, _STEP}:
            what = f"checkpoint {self._parent.id} was not saved by `save_checkpoint`"
            fix = "read it with `roost.open_package(path).load()`, and begin a run of another name"
            raise CheckpointError(what, where=self.path, fix=fix)
        if set(state[_OBJECTS]) != set(objects):
            raise CheckpointError(
                f"checkpoint {self._parent.id} has the objects {', '.join(state[_OBJECTS])}",
                where=self.path,
                received=", ".join(objects),
                fix="give the same names to save_checkpoint and load_checkpoint",
            )
        for name, one in objects.items():
            try:
                one.load_state_dict(state[_OBJECTS][name])
            except Exception as error:
                error.add_note(f"while loading {name!r} of checkpoint {self._parent.id} in {self.path}")
                raise
        self._loader_states = state[_LOADERS]
        for loader, position in zip(self._loaders, self._loader_states, strict=False):
            loader.load_state_dict(position)
        for line in seeding.set_rng_state(state[_RNG]):
            warnings.warn(line, stacklevel=2)
        for loader in self._loaders:
            for reason in loader.inexact_reasons() if loader.batch else ():
                print(reason, flush=True)
        self.step, self._parent = state[_STEP], None
        return self.step

    def finish(self) -> None:
        """Ends the session: the run is done. More calls do nothing.

        Raises:
            OSError: The end could not be recorded.
        """
        self._end(None, is_done=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error, is_done=True)

    def _end_with_program(self) -> None:
        # The interpreter stores here the error by which the program ends; at a prompt and in a notebook,
        # where no error ends it, that of any earlier input.
        error = None if _is_interactive() else getattr(sys, "last_value", None)
        self._end(error if isinstance(error, BaseException) else None, is_done=False)

    def _end(self, error: BaseException | None, *, is_done: bool) -> None:
        if not self._is_open or self.is_forked:
            return
        with self._lock:
            self._is_open = False
            _open_runs.pop(self.path.absolute(), None)
            atexit.unregister(self._end_with_program)
            for loader in self._loaders:
                loader.close()
            self._writer.end(error, is_done=is_done)

    def _progress(self, step: int) -> Progress:
        from roost.train.progress import Progress

        first = self._loaders[0] if self._loaders else None
        return Progress(step=step, epoch=first.epoch if first else 0, batch=first.batch if first else 0)

    def _require_open(self) -> None:
        if not self._is_open:
            fix = "call `roost.init` again with the same name"
            raise Refused("the run has ended", where=self.path, fix=fix)
        self._writer.require_own_process()  # before the lock, which another thread held when this one forked

    def _require_loaded(self) -> None:
        if self._parent is not None:
            raise Refused(
                f"the run continues from checkpoint {self._parent.id}, of step {self._parent.step}",
                where=self.path,
                fix="call `load_checkpoint` first; or begin a run of another name",
            )

    def _checked_step(self, given: int | None, default: int) -> int:
        step = checked_count("step", given)
        if step is None:
            return default
        if step < self.step:
            raise Refused(
                f"the run is at step {self.step} already",
                setting="step",
                received=step,
                fix=f"give a step from {self.step} on",
            )
        return step


def _is_interactive() -> bool:
    """Whether a person types at a prompt or in a notebook: Python, IPython and its kernels set this name."""
    return hasattr(sys, "ps1")


def _require_methods(objects: Mapping[str, Any], method: str) -> None:
    if not objects:
        fix = "name what training changes: model=model, optimizer=optimizer"
        raise UsageError("no object is given", fix=fix)
    for name, one in objects.items():
        if not callable(getattr(one, method, None)):
            fix = f"give an object with `{method}`"
            raise UsageError(f"has no `{method}`", setting=name, received=type(one).__name__, fix=fix)
