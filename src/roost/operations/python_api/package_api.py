"""`roost.Package`: creating, writing, reading and loading a package from Python."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from roost.base.errors import ConfigError, NotFound, Refused, RoostError, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.base.text.typed_path import typed_path
from roost.config import layers
from roost.config.layers import Config, Layer
from roost.config.run_settings import Contract
from roost.operations.listing.package_row import PackageSummary
from roost.operations.listing.package_summary import summarize
from roost.operations.python_api import system_table, tables
from roost.operations.python_api.system_table import SystemTable
from roost.package import labels, package_name, records
from roost.package import package as stored
from roost.package.checkpoints import checkpoint
from roost.package.dlnest import original_folder
from roost.package.kinds import PackageKind
from roost.package.labels import Labels
from roost.package.package_draft import PackageDraft, prepare_python, prepare_training
from roost.package.sessions import Session
from roost.project.package_writer import STATE, PackageWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roost.project.contract import Runner


_NEWEST = -1
"""The newest checkpoint, where a checkpoint is named by its id; as in DLNest."""


class MetricCurve(NamedTuple):
    """The recorded values of one metric."""

    steps: NDArray[Any]
    """(n,) int64, ascending."""
    values: NDArray[Any]
    """(n,) float64; a value that was not finite is NaN or infinite."""


class Package(stored.PackageFolder):
    """The folder of one run, from Python.

    ```
    with roost.Package.new({"lr": 0.1, "checkpoint": {"fast": 3}}, root="runs") as run:
        for step in range(1, 1001):
            ...
            if step % 100 == 0:
                run.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, step=step)

    run = roost.Package.open(path)                  # reads, at any time, also while it is written
    state = run.load(device="cuda")                 # the newest; run.load(3): that one
    model = run.load_model()                        # a package of `roost run`: its Runner, by its own code
    ```

    It can be written only within ``with``. The first write takes the package's lock and begins a session,
    which ends with the block. Only one thread may write. Methods that need torch import it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._writing: PackageWriter | None = None

    @classmethod
    def new(
        cls,
        config: Path | str | Mapping[str, Any],
        *,
        root: Path | str | None = None,
        name: str | None = None,
        description: str | None = None,
        copy: bool = True,
        project: Path | str | None = None,
        tuning: Path | str | None = None,
    ) -> Self:
        """Creates a package. Nothing is ever overwritten: an existing name gets a suffix.

        Args:
            config: A config file, read with the files it includes; or a mapping of settings, without files. A
                config that names a Runner is checked as in `roost run`, and `roost continue` trains it. Of
                any other, roost reads only ``save_root``, ``description`` and ``checkpoint``.
            root: The parent folder; None: ``save_root`` of the config.
            name: The name of the folder; None: the time.
            description: A few words, written as the name of a marker file.
            copy: Whether to copy the project's folder, as `roost run` does.
            tuning: A second config file, whose values override those of ``config``, which must be a file.
            project: The project's folder; None: that of a config that names a Runner, as `roost run` finds
                it; of any other the config's folder.

        Raises:
            NotFound: There is no such file or folder.
            ConfigError: The config is wrong.
            UsageError: The name or the description is not a valid folder name.
            OSError: It cannot be written; the unfinished package is removed.
        """
        if name is not None:
            package_name.checked_name(name, setting="name")
        prepared = draft(config, expanded(tuning), expanded(project), expanded(root), description, copy)
        notes = prepared.notes(is_check=False)
        made = cls(prepared.create(name, command=sys.argv).path)
        for line in notes:
            warnings.warn(line, stacklevel=2)
        return made

    # ---- reading ------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """Whether both are the same folder: `roost.runs` gives a new object each time."""
        return isinstance(other, Package) and self.path.absolute() == other.path.absolute()

    def __hash__(self) -> int:
        return hash(self.path.absolute())

    def __repr__(self) -> str:
        try:
            state, found = self.state, checkpoint.ids(self.checkpoints) if self.checkpoints.is_dir() else []
        except (RoostError, OSError):
            return f"Package({str(self.path)!r})"
        number = "1 checkpoint" if len(found) == 1 else f"{len(found)} checkpoints"
        return f"Package({str(self.path)!r}: {state}, {number})"

    def _repr_html_(self) -> str:
        """Returns the table for a notebook: the summary, and the newest value of each metric."""
        summary = msgspec.structs.asdict(self.summary)
        shown: dict[str, Any] = {
            name: ", ".join(value) if isinstance(value, list) else value
            for name, value in summary.items()
            if value is not None and value is not False and value != []
        }
        if (started := shown.get("started")) is not None:
            shown["started"] = time.strftime("%Y-%m-%d %H:%M", time.localtime(started))
        newest = {name: float(curve.values[-1]) for name, curve in self.metrics().items()}
        lines = [[name, tables.format_cell(value)] for name, value in {**shown, **newest}.items()]
        return tables.to_html(str(self.path), ("", ""), lines)

    def sessions(self) -> list[Session]:
        """Returns all sessions, the oldest first.

        Raises:
            NotFound: DLNest's own programs wrote the package, in which there are none. `roost.runs` lists
                such packages; without sessions neither `settings` nor `load` read them.
        """
        if original_folder.is_original(self.path):
            raise original_folder.read_only_error(self.path)
        return super().sessions()

    @property
    def summary(self) -> PackageSummary:
        """The line of the package in `roost ls`: state, step, the main metric, times."""
        return summarize(self.path)

    @property
    def tags(self) -> list[str]:
        """The tags, in the order in which they were added."""
        return labels.read(self.path).tags

    @property
    def note(self) -> str | None:
        """The note; None without one."""
        return labels.read(self.path).note

    @property
    def starred(self) -> bool:
        """Whether the run is starred: then it is neither removed nor pruned."""
        return labels.read(self.path).starred

    def tag(self, *tags: str) -> None:
        """Adds tags; also while the run trains, and without ``with``.

        Raises:
            NotFound: DLNest's own programs wrote the package.
            UsageError: One of them is no tag, or the package has too many.
            Refused: A newer roost has written the package, or its labels.
            OSError: They cannot be written.
        """
        self._label(lambda path: labels.add_tags(path, tags))

    def untag(self, *tags: str) -> None:
        """Removes tags, whether or not the run has them; raises the errors of `tag`."""
        self._label(lambda path: labels.remove_tags(path, tags))

    def set_note(self, text: str | None) -> None:
        """Replaces the note; None removes it. Raises the errors of `tag`."""
        self._label(lambda path: labels.set_note(path, text))

    def star(self, starred: bool = True) -> None:
        """Stars the run, or removes the star; raises the errors of `tag`."""
        self._label(lambda path: labels.set_starred(path, starred))

    def _label(self, update: Callable[[Path], Labels]) -> None:
        from roost.operations.keeping import label_packages  # with the queue

        label_packages.change([self.path], update)

    def rows(self) -> list[dict[str, Any]]:
        """Returns all effective rows of the run, each with ``step``, ``epoch``, ``time`` and the recorded
        values. Of a long run, a few `metrics` are read much faster."""
        return [dict(row) for row in self.records().rows]

    def metrics(self, pattern: str = "*") -> dict[str, MetricCurve]:
        """Returns the recorded values of the metrics whose names match.

        Args:
            pattern: A name, or one with ``*``: ``valid/*``. Times (``perf/``) and norms (``stats/``) are no
                metrics: they match only a pattern that begins so.

        Raises:
            NotFound: No name matches, and the pattern is a name without ``*``.
        """
        from roost.operations.curves import history_cache

        def select(known: Sequence[str]) -> list[str]:
            found = [
                name
                for name in known
                if fnmatchcase(name, pattern)
                and (records.is_metric(name) or name.partition("/")[0] == pattern.partition("/")[0])
            ]
            if not found and "*" not in pattern:
                fix = f"{did_you_mean(pattern, known)}`.metrics()` has all"
                raise NotFound("is not recorded", where=self.path, received=pattern, fix=fix)
            return sorted(found)

        _, series = history_cache.read_series(self.path / "records", select)
        return {name: MetricCurve(*one) for name, one in series.items()}

    def system(self) -> SystemTable:
        """Returns what the cards, the processes and the host did during the sessions, second by second: empty
        for a session without a supervisor (`with`), for one that ended within a second, and where an older
        roost ran it."""
        return system_table.read(self.path)

    def to_pandas(self) -> Any:
        """Returns the metrics as a ``pandas.DataFrame``: a line per recorded step, indexed by it; a column
        per metric, NaN where a step has no value.

        Raises:
            Refused: pandas is not installed.
        """
        return tables.to_pandas(self._metric_columns(), index="step")

    def to_arrow(self) -> Any:
        """Returns the metrics as a ``pyarrow.Table``: a line per recorded step, null where a step has no
        value.

        Raises:
            Refused: pyarrow is not installed.
        """
        return tables.to_arrow(self._metric_columns())

    def _metric_columns(self) -> dict[str, list[Any]]:
        curves = self.metrics()
        steps = sorted(set[int]().union(*(curve.steps.tolist() for curve in curves.values())))
        columns: dict[str, list[Any]] = {"step": steps}
        for name, curve in curves.items():
            values = dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))
            columns[name] = [values.get(step) for step in steps]
        return columns

    @property
    def current(self) -> int | None:
        """The id of the checkpoint that the run continues from; None without checkpoints."""
        line = self.store().lineage()
        return line[-1].id if line else None

    def load(self, id: int | None = None, *, device: str = "cpu") -> Any:
        """Returns the state that `save` was given; for a trainer's checkpoint its parts by name.

        It only reads. The bytes are verified by their checksums; if the newest checkpoint is damaged, a
        warning is issued and the one before it is returned.

        Args:
            id: The checkpoint; None or -1: the newest of the run's lineage.
            device: The device of the tensors: cpu, cuda, cuda:1, auto, … Tied tensors stay tied.

        Raises:
            NotFound: There is no such checkpoint, or none at all.
            CheckpointError: The checkpoint is damaged, or all are.
            Refused: This machine does not have the device.
        """
        from roost.project.device_choice import choose_device  # torch

        where = choose_device(device)
        store = self.store()

        def read(path: Path) -> dict[str, Any]:
            return checkpoint.read(path, device=where)[1]

        if id not in (None, _NEWEST):
            return _unwrap_state(read(store.path(id)))
        found, notes = store.newest_readable(read)
        for line in notes:
            warnings.warn(line, stacklevel=2)
        if found is None:
            raise NotFound("the package has no checkpoint yet", where=self.path, fix="ask `current` first")
        return _unwrap_state(found)

    def load_model(
        self,
        *,
        checkpoint: str | int | None = None,
        device: str = "auto",
        info: Mapping[str, Any] | None = None,
        trust: bool = False,
    ) -> Runner:
        """Returns the package's Runner, built by its own code, with the weights of a checkpoint, in
        evaluation mode.

        The working folder, ``sys.path``, modules and random generators are as before when this returns, so
        packages with modules of the same names can be loaded together. Modules that the Runner imports later,
        while it runs, are not found: import them at the top of the file.

        A runner of DLNest's contract is built in its order, from ``BAll`` to ``AModelInit``, and is not
        put into evaluation mode.

        Args:
            checkpoint: ``last``, ``best`` or an id; None: ``last``, the newest undamaged one of the run's
                lineage.
            device: auto, cpu, cuda, cuda:1, …
            info: The value of ``Runner.info``; None: that of the Dataset, which is then built and needs its
                data.
            trust: Reads pickled objects of the checkpoint that another user wrote: they may run any code.

        Raises:
            NotFound: There is no such checkpoint, or none at all.
            CheckpointError: The checkpoint is damaged or does not fit the Runner.
            ConfigError: A setting or a class path is wrong.
            ContractError: The Runner does not keep the contract.
            Refused: The package has no Runner, or this machine does not have the device.
            Exception: Any error of the project's code.
        """
        from roost.package.checkpoints import selection
        from roost.project.loaded_model import load_experiment
        from roost.project.package_context import package_code  # torch

        id = selection.checkpoint_id(self, checkpoint)
        with package_code(self):
            given: dict[str, Any] = {"checkpoint": id, "device": device, "info": info, "trust": trust}
            if PackageKind.of(self.request) is PackageKind.DLNEST:
                from roost.project.dlnest.trained_project import load_trained

                trained = load_trained(self, **given)
                runner, notes = trained.project.runner, trained.notes
            else:
                loaded = load_experiment(self, **given)
                runner, notes = loaded.runner, loaded.notes
        for line in notes:
            warnings.warn(line, stacklevel=2)
        made: Runner = runner
        return made

    # ---- writing ------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._writing is not None:
            raise Refused("the package is open for writing already", where=self.path, fix="use that `with`")
        from roost.operations.reading import package_schema  # with the queue

        package_schema.require_changeable(self.path)
        self._writing = PackageWriter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        writing, self._writing = self._writing, None
        assert writing is not None
        writing.end(error)

    def _open_writer(self) -> PackageWriter:
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
        """Saves the state as one checkpoint, durable when this returns. Then checkpoints that no track of the
        setting ``checkpoint`` keeps are removed.

        A state that `load` returned from a trainer's checkpoint may be changed and saved as a whole; `roost
        continue` continues from it, and it is recorded as inexact.

        Args:
            state: Any nest of plain values, arrays and tensors; tied tensors are kept as one.
            hold: Whether it goes into the held track.
            step: The step of the state; None: one more than the checkpoint before.
            epoch: The epoch of the state; None: 0.
            metrics: Metrics at this step, for the best track; they are also recorded as a row.

        Returns:
            The id of the checkpoint.

        Raises:
            Refused: Outside of ``with``, in use by another process, in a forked process, a state that the
                package cannot continue from, or a metric that is no number or is called like a field of rows.
            CheckpointError: The state holds an object that cannot be saved.
            OSError: The checkpoint could not be written; the older ones are unchanged.
        """
        return self._open_writer().save(state, hold=hold, step=step, epoch=epoch, metrics=metrics or {}).id

    def set_current(self, id: int) -> None:
        """Makes the run continue from checkpoint ``id``, in `save` and in `roost continue`. Later checkpoints
        stay on the disk, but are neither the newest nor the best any more.

        Raises:
            NotFound: There is no such checkpoint.
            CheckpointError: The checkpoint is damaged.
            Refused: As in `save`.
            OSError: The change cannot be written.
        """
        self._open_writer().set_current(id)


def open_package(path: Path | str) -> Package:
    """Opens the package at ``path`` for reading, or within ``with`` for writing.

    Raises:
        NotFound: There is no package.
    """
    return Package.open(path)


def _unwrap_state(states: dict[str, Any]) -> Any:
    return states[STATE] if list(states) == [STATE] else states


def expanded(given: Path | str | None) -> Path | None:
    """Returns the path with ``~`` expanded; None for None."""
    return None if given is None else typed_path(given)


def draft(
    config: Path | str | Mapping[str, Any],
    tuning: Path | None,
    project: Path | None,
    root: Path | None,
    description: str | None,
    copy: bool,
) -> PackageDraft:
    """Checks what a new package needs; see `Package.new` for the arguments and errors."""
    if isinstance(config, Mapping):
        if tuning is not None:
            fix = "give a config file, or merge the two mappings"
            raise UsageError("overrides a config file", setting="tuning", received=str(tuning), fix=fix)
        values = _plain(config)
        made = Config(Path.cwd() / "settings", values, [], (Layer("given from Python", values),))
        return prepare_python(made, copy=False, project=project, root=root, description=description)
    loaded = layers.load(config, tuning=tuning)
    if copy and loaded.contract is Contract.NATIVE and loaded.values.get("runner") is not None:
        return prepare_training(loaded, project=project, root=root, description=description)
    return prepare_python(loaded, copy=copy, project=project, root=root, description=description)


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings as JSON types.

    Raises:
        ConfigError: A value has no JSON form.
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
            plain = msgspec.to_builtins(value, enc_hook=converted, str_keys=True)
            made[str(key)] = json.loads(json.dumps(plain))  # a tuple is a list when it is read again
        except (NotImplementedError, TypeError, ValueError, RecursionError) as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            fix = "give numbers, texts, lists and dicts"
            raise ConfigError(
                f"holds what settings cannot: {str(error) or kind}", setting=str(key), fix=fix
            ) from None
    return made
