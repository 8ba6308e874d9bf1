"""The run of a script written for W&B: a `roost.ScriptRun` whose rows follow W&B's rule of steps."""

from __future__ import annotations

import atexit
import glob
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from roost.base import durable
from roost.base.errors import ConfigError, ContractError, NotFound, Refused, RoostError, UsageError
from roost.compat.media_values import array_of, file_name
from roost.compat.unsupported_calls import Placeholder, Unsupported
from roost.compat.wandb.wandb_config import WandbConfig
from roost.compat.wandb.wandb_media import Histogram
from roost.operations.python_api import package_api
from roost.operations.python_api.package_api import Package
from roost.operations.python_api.script_run import ScriptRun
from roost.operations.reading import package_schema
from roost.package import labels, package_name, records
from roost.package.kinds import PackageKind
from roost.package.records import ROW_FIELDS

UNSUPPORTED = Unsupported("roost.compat.wandb")
_WANDB = "wandb"
"""The name of the run's own state in a checkpoint."""
_NESTED = "config"
"""Where settings are put whose names are settings of roost."""
_READ_BYTES = 1 << 20
_MAX_STEP = 2**63 - 1


class Resume(StrEnum):
    """Whether a run continues the package of its id."""

    NO = "no"
    NEVER = "never"
    ALLOW = "allow"
    MUST = "must"
    AUTO = "auto"

    @classmethod
    def of(cls, given: bool | str | None) -> Resume:
        """Returns W&B's argument ``resume`` as one of these.

        Raises:
            UsageError: It is none of them.
        """
        if not given:
            return cls.NO
        try:
            return cls.AUTO if given is True else cls(given)
        except ValueError:
            fix = "give allow, must, never or auto"
            raise UsageError("is unknown", setting="resume", received=str(given), fix=fix) from None

    @property
    def continues(self) -> bool:
        """Whether a package that exists is continued."""
        return self in (Resume.ALLOW, Resume.MUST, Resume.AUTO)


class WandbRun:
    """A run. Its package is made by the first call that records, so that ``config`` may be updated before.

    A row has one step. `log` without a step adds to the current row, ends it, and goes to the next step;
    with ``commit=False`` the row stays open. With a step above the current one the row ends before; with the
    current one the values join it; values of an earlier step are dropped, and that is said once. But in a
    session that continues a run without a checkpoint of `save_checkpoint`, the first step may be an earlier
    one: the rows from it on are recorded again.

    Args:
        name: The name; None: the id, or the time.
        id: The id: the package's name.
        project, group, job_type: Recorded as tags.
        tags: More tags; characters that a tag of roost cannot have become ``-``.
        notes: The note of the package.
        root: The folder that contains the package; None: ``runs``.
        config: The settings.
        resume: Whether to continue the package of the id; for `Resume.AUTO` also of the name.
        is_recorded: Whether anything is recorded.

    Attributes:
        config: The settings, by attribute and by item.
        summary: The newest value of each metric, and what the script sets.
        step: The step of the current row.
        resumed: Whether the run continues a package.
    """

    def __init__(
        self,
        *,
        name: str | None,
        id: str | None,
        project: str | None,
        group: str | None,
        job_type: str | None,
        tags: Sequence[str],
        notes: str | None,
        root: Path | None,
        config: WandbConfig,
        resume: Resume,
        is_recorded: bool,
    ) -> None:
        self.config, self.summary, self.step, self.resumed = config, WandbSummary(), 0, False
        self.project, self.group, self.job_type, self.notes = project, group, job_type, notes
        self.tags, self.entity, self.url, self.sweep_id = tuple(tags), "", None, None
        self.has_finished, self.disabled = False, not is_recorded
        self._name, self._root = id or name, root
        self._pid = os.getpid()
        self._lock = threading.RLock()
        """Held while the open row changes: scripts log from threads, too."""
        self._row: dict[str, float] = {}
        self._newest = 0
        """The step of the newest `log`."""
        self._may_go_back = False
        self._patterns: dict[str, Path | None] = {}
        """The patterns of files to save, with the folder that their names are relative to."""
        self._script: ScriptRun | None = None
        if is_recorded:
            self._draft({}).require_writable()  # here, and not in the first step
            if self._name and resume is not Resume.NO:
                self._continue_or_refuse(resume, is_named=id is not None or resume is Resume.AUTO)

    # ---- the package --------------------------------------------------------------------------------------

    @property
    def script(self) -> ScriptRun:
        """The run of roost, whose package is made now if it is not yet."""
        if self._script is None:
            self._script = ScriptRun(self._new_package())
            self._begin()
        return self._script

    def _continue_or_refuse(self, resume: Resume, *, is_named: bool) -> None:
        if resume is not Resume.AUTO:
            package_name.checked_name(str(self._name), setting="id")
        path = self._draft({}).root / file_name(str(self._name)).replace("/", "_")
        exists = is_named and path.is_dir()
        if exists and resume is Resume.NEVER:
            raise Refused("a run of this id exists", where=path, fix="give another id, or resume='allow'")
        if not exists and resume is Resume.MUST:
            raise NotFound("there is no run of this id", where=path, fix="give its id, or resume='allow'")
        if not exists or not resume.continues:
            return
        package = Package.open(path)
        package_schema.require_changeable(path)
        if PackageKind.of(package.request) is not PackageKind.PYTHON:
            fix = "give another id"
            raise Refused("the package of this id is not of a loop of your own", where=path, fix=fix)
        self._take_config(package)
        self._script, self.resumed, self._may_go_back = ScriptRun(package), True, True
        last = records.last_step(path / "records")
        self.step = last + 1 if package.rows() else 0
        self._begin()

    def _take_config(self, package: Package) -> None:
        """Adds the settings of the package; given ones must equal them."""
        kept = dict(package.args)
        kept = dict(kept[_NESTED]) if set(kept) == {_NESTED} else kept
        for name, value in _plain(self.config.as_dict()).items():
            if name in kept and kept[name] != value:
                raise Refused(
                    f"the run of this id has other settings: {name} was {kept[name]!r}",
                    setting=f"config.{name}",
                    received=value,
                    where=package.path,
                    fix="give another id, or the settings that it has",
                )
        self.config.setdefaults(kept)

    def _draft(self, values: Mapping[str, Any], *, description: str | None = None) -> Any:
        root = package_api.expanded(self._root)
        return package_api.draft(values, None, None, root, description, False)

    def _new_package(self) -> Package:
        values, name, description = _plain(self.config.as_dict()), self._name, None
        if name is not None:
            try:
                package_name.checked_name(name, setting="name")
            except UsageError:  # a free text, which W&B allows
                name, description = None, file_name(str(name)).replace("/", "_")
        try:
            draft = self._draft(values, description=description)
            is_nested = draft.kind is not PackageKind.PYTHON
        except ConfigError as error:
            UNSUPPORTED.say("config", f"is recorded below `{_NESTED}`: {error.message}")
            is_nested = True
        if is_nested:
            draft = self._draft({_NESTED: values}, description=description)
        made = Package(draft.create(name, command=sys.argv).path)
        if name is not None and made.path.name != name:
            UNSUPPORTED.say(f"the name {name!r}", f"exists: this run is {made.path.name!r}")
        return made

    def _begin(self) -> None:
        assert self._script is not None
        package = self._script.package
        named = (("project", self.project), ("group", self.group), ("job", self.job_type))
        tags = [*self.tags, *(f"{kind}:{name}" for kind, name in named if name)]
        try:
            if tags:
                package.tag(*(_tag(tag) for tag in tags))
            if self.notes:
                package.set_note(self.notes)
        except (RoostError, OSError) as error:  # too many tags, for example
            UNSUPPORTED.say("tags or notes", f"are not recorded: {error}")
        self.config.watch_changes(
            lambda name: UNSUPPORTED.say(
                f"config.{name}", "was set after the first record: it is not recorded"
            )
        )
        atexit.register(self._end_with_program)  # after that of the ScriptRun, so it is called before

    @property
    def id(self) -> str:
        """The name of the package."""
        return self._name or ("disabled" if self.disabled else self.script.path.name)

    @property
    def name(self) -> str:
        """The name of the package."""
        return self.id

    @name.setter
    def name(self, name: str) -> None:
        if self._script is None:
            self._name = name
        else:
            UNSUPPORTED.say("run.name", "was set after the package was made: it keeps its name")

    @property
    def path(self) -> str:
        """The folder of the package."""
        return "" if self.disabled else str(self.script.path)

    @property
    def dir(self) -> str:
        """The folder ``files`` of the package: what a script writes here is kept."""
        if self.disabled:
            return "."
        folder = self.script.path / "files"
        durable.make_folders(folder, below=self.script.path)
        return str(folder)

    # ---- rows ---------------------------------------------------------------------------------------------

    def log(
        self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, **_: Any
    ) -> None:
        """Adds values to the current row: numbers, tensors with one element, and media.

        Args:
            data: Values by name; nested ones get names with a dot. Media go to ``media/<step>/``.
            step: The step; None: the current one.
            commit: Whether the row ends; None: it does unless a step is given.

        Raises:
            Refused: The run has a checkpoint of `save_checkpoint` that was not loaded.
        """
        if self.disabled or self.has_finished:
            if self.has_finished:
                UNSUPPORTED.say("log", "after finish: nothing is recorded")
            return
        if not isinstance(data, Mapping):
            UNSUPPORTED.say("log", f"of a {type(data).__name__}: give a dict of values by name")
            return
        if self._is_forked():
            UNSUPPORTED.say("log", "in a process that was forked from that of `init`: nothing is recorded")
            return
        with self._lock:
            self._log(data, step, commit)

    def _log(self, data: Mapping[str, Any], step: int | None, commit: bool | None) -> None:
        script = self.script
        if step is not None and not self._go_to(step):
            return
        self._may_go_back, self._newest = False, self.step
        media: dict[str, Any] = {}
        for name, value in _flat(data):
            self._add(name, value, media)
        self.summary.record(self._row)
        if media:
            self._record_media(script, media)
        if commit if commit is not None else step is None:
            self._end_row()
            self.step += 1

    def _is_forked(self) -> bool:
        """Whether this process was forked from that of `init`, which alone writes."""
        return os.getpid() != self._pid

    def _go_to(self, given: Any) -> bool:
        """Makes a step the current one; returns False if it is an earlier one, or none."""
        try:
            step = min(int(given), _MAX_STEP)
        except (TypeError, ValueError, OverflowError):
            UNSUPPORTED.say(f"log(step={given!r})", "is no step: its values are dropped")
            return False
        if step < (0 if self._may_go_back else self.step):
            what = f"is below the current step {self.step}: its values are dropped, as in W&B"
            UNSUPPORTED.say(f"log(step={step})", what)
            return False
        if step != self.step:
            self._end_row()
            self.step = step
        return True

    def _add(self, name: str, value: Any, media: dict[str, Any]) -> None:
        if isinstance(value, Placeholder):
            return
        number = _number(value)
        if number is not None:
            if name in ROW_FIELDS:
                UNSUPPORTED.say(name, f"is recorded as log/{name}: a row has its own {name}")
                name = f"log/{name}"
            self._row[name] = number
        elif hasattr(value, "media") or hasattr(value, "savefig"):
            media[name] = value
        elif isinstance(value, list | tuple) and value and all(hasattr(one, "media") for one in value):
            media.update({f"{name}_{place}": one for place, one in enumerate(value)})
        elif hasattr(value, "dtype") and hasattr(value, "shape"):
            media[name] = Histogram(value)
        else:
            UNSUPPORTED.say(name, f"is a {type(value).__name__}: rows hold numbers, it is not recorded")

    def _record_media(self, script: ScriptRun, media: Mapping[str, Any]) -> None:
        for name, value in media.items():
            for argument in getattr(value, "left_out", ()):
                UNSUPPORTED.say(f"{type(value).__name__}({argument}=…)", "is not recorded")
            try:
                shown = value.media() if hasattr(value, "media") else value
                script.log_media({file_name(name): shown}, step=self.step)
            except (OSError, ValueError, TypeError, ImportError, ContractError) as error:
                UNSUPPORTED.say(name, f"is not recorded: {error}")

    def _end_row(self) -> None:
        row, self._row = self._row, {}
        if row:
            try:
                self.script.log(row, step=self.step)
            except OSError as error:  # the row is kept, and written with the next one
                UNSUPPORTED.say("a row", f"is not written yet: {error}")

    # ---- files --------------------------------------------------------------------------------------------

    def save(self, glob_str: Any = None, base_path: Any = None, policy: str = "live") -> list[str]:
        """Copies the files that match a pattern into the folder ``files``, again at the end of the run."""
        if glob_str is None or self.disabled:
            return []
        self._patterns[str(glob_str)] = Path(base_path) if base_path is not None else None
        return self._copy_files(str(glob_str))

    def _copy_files(self, pattern: str) -> list[str]:
        base, target, made = self._patterns[pattern], Path(self.dir).resolve(), []
        for found in (Path(name).resolve() for name in sorted(glob.glob(pattern))):  # noqa: PTH207
            if not found.is_file() or found.is_relative_to(target):
                continue
            inside = base is not None and found.is_relative_to(base.resolve())
            copy = target / (found.relative_to(base.resolve()) if base and inside else found.name)
            try:
                durable.make_folders(copy.parent, below=target)
                _copy(found, copy)
                made.append(str(copy))
            except OSError as error:
                UNSUPPORTED.say(f"save({pattern!r})", f"{found} is not copied: {error}")
        return made

    # ---- checkpoints --------------------------------------------------------------------------------------

    def save_checkpoint(self, **objects: Any) -> int:
        """Saves objects as `roost.ScriptRun.save_checkpoint` does, with the current step and its open row."""
        return self.script.save_checkpoint(**{_WANDB: self, **objects})

    def load_checkpoint(self, **objects: Any) -> int:
        """Restores what `save_checkpoint` saved; see `roost.ScriptRun.load_checkpoint`. Without a checkpoint
        the run begins again, at step 0."""
        self.step, self._row, self.summary = 0, {}, WandbSummary()
        return self.script.load_checkpoint(**{_WANDB: self}, **objects)

    def resumable(self, loader: Any) -> Any:
        """Returns the batches of a loader as `roost.ScriptRun.resumable` does."""
        return self.script.resumable(loader)

    def state_dict(self) -> dict[str, Any]:
        """Returns the current step, its open row, and the summary."""
        return {"step": self.step, "row": dict(self._row), "summary": self.summary.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        self.step, self._row, self._may_go_back = state["step"], dict(state["row"]), False
        self.summary.load_state_dict(state["summary"])

    # ---- the end ------------------------------------------------------------------------------------------

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """Ends the run: it has succeeded; with an exit code other than 0 it has failed."""
        if self.has_finished or self._is_forked():
            return
        if not self.disabled:
            script = self.script
            self._end_records()
            if exit_code:
                script.__exit__(RuntimeError, RuntimeError(f"finish(exit_code={exit_code})"), None)
            else:
                script.finish()
        self.has_finished = True

    def _end_records(self) -> None:
        atexit.unregister(self._end_with_program)
        self._end_row()
        found = {f"summary/{name}": value for name, value in self.summary.chosen().items()}
        numbers = {name: number for name, value in found.items() if (number := _number(value)) is not None}
        for name in found.keys() - numbers.keys():
            UNSUPPORTED.say(name, "is no number: it is not recorded")
        if numbers:
            self.script.log(numbers, step=max(self._newest, self.script.step))
        for pattern in self._patterns:
            self._copy_files(pattern)

    def _end_with_program(self) -> None:
        if not (self.has_finished or self._is_forked()):
            self._end_records()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None or self.disabled:
            self.finish()
        elif not (self.has_finished or self._is_forked()):
            self._end_records()
            self.script.__exit__(kind, error, trace)
            self.has_finished = True

    # ---- without a counterpart ----------------------------------------------------------------------------

    def define_metric(self, name: str, step_metric: Any = None, **settings: Any) -> Placeholder:
        """Accepted; the axis of every curve is the step, which is said once."""
        if step_metric is not None:
            UNSUPPORTED.say("define_metric(step_metric=…)", "has no counterpart: curves are over the step")
        if settings.get("summary"):
            UNSUPPORTED.say("define_metric(summary=…)", "has no counterpart: `roost ls` shows last and best")
        return Placeholder()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return UNSUPPORTED.placeholder(f"run.{name}")


class WandbSummary:
    """The newest value of each metric; values that a script sets replace them, and are recorded at the end
    as ``summary/<name>``."""

    def __init__(self) -> None:
        self.__dict__.update(_logged={}, _chosen={})

    def record(self, row: Mapping[str, float]) -> None:
        """Takes the values of a row."""
        self._logged.update(row)

    def chosen(self) -> dict[str, Any]:
        """Returns what the script set."""
        return dict(self._chosen)

    def update(self, given: Mapping[str, Any]) -> None:
        """Sets values."""
        self._chosen.update(given)

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a value, or the default."""
        return {**self._logged, **self._chosen}.get(name, default)

    def keys(self) -> list[str]:
        """Returns the names."""
        return [*{**self._logged, **self._chosen}]

    def state_dict(self) -> dict[str, Any]:
        """Returns the values, logged and set."""
        return {"logged": dict(self._logged), "chosen": dict(self._chosen)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        self.__dict__.update(_logged=dict(state["logged"]), _chosen=dict(state["chosen"]))

    def __getitem__(self, name: str) -> Any:
        return {**self._logged, **self._chosen}[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._chosen[name] = value

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the summary has no {name!r}") from None

    __setattr__ = __setitem__

    def __contains__(self, name: object) -> bool:
        return name in self._logged or name in self._chosen

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


def _number(value: Any) -> float | None:
    """Returns a number, or a tensor or array with one element, as a float; None for anything else."""
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:  # a whole number beyond all floats
            return None
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        array = array_of(value)
        return float(array.reshape(())) if array.size == 1 and array.dtype.kind in "biuf" else None
    return None


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _plain(value: Any) -> Any:
    """Returns settings with what has no JSON form as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(one) for one in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _tag(text: str) -> str:
    made = re.sub(r"[^\w./:+-]", "-", text).lstrip("-+")[:64] or "tag"
    return labels.checked_tag(made)


def _copy(found: Path, copy: Path) -> None:
    staging = durable.staging_name(copy)
    with found.open("rb") as file:
        durable.write_new(staging, iter(lambda: file.read(_READ_BYTES), b""))
    durable.rename(staging, copy)
