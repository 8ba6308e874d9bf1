"""The resume gate of ``continue``: compares settings and code with the run so far, and decides which
differences are allowed without ``--force``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roost.base.errors import Refused
from roost.config.dlnest.dlnest_settings import CHECKPOINTS, SECTION
from roost.config.values import nested_values
from roost.config.values.nested_values import ABSENT, ConfigDifference
from roost.package import snapshot
from roost.package.checkpoints import checkpoint
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder, with_overrides
from roost.package.results import staged_archives
from roost.package.results.staged_archives import DLNEST_KEY, STAGE_KEY

SAFE_SETTINGS = (
    "max_epochs",
    "max_steps",
    "max_time",
    "early_stopping.patience",
    "save_root",
    "description",
    "test_at_end",
    "log_every",
    "visualize_every",
    "visualize_samples",
    "statistics",
    "profile",
    "mirrors",
    "remote",
    "options",
    "checkpoint",
    "data.num_workers",
    "data.valid.num_workers",
    "data.test.num_workers",
    "data.prefetch",
    "data.loader_timeout",
    "data.stage",
    "limits",
    "require",
    "devices",
    "strategy",
    "rank_timeout",
    "on_non_finite",
    "on_step_error",
    "max_skipped_steps",
)
"""Settings, and sections with all their keys, that may change between two sessions without changing the
weights. They determine when a run ends, what it keeps, shows and records, and what happens after a failed
step; or the devices, for which the worker reports what becomes inexact; or where an archive of data is: the
digest is compared. All others, including the user's own keys, are refused without ``--force``."""

_SAFE_KEYS = ("save_root", CHECKPOINTS)
"""The safe keys of DLNest's contract. In it, `SAFE_SETTINGS` are in the section ``roost``."""

LENGTH_SETTINGS = frozenset({"max_epochs", "max_steps"})
_TOTAL_STEPS = re.compile(r"\$\{\s*total_steps\s*\}")


@dataclass(frozen=True)
class ResumeGate:
    """The differences between a session and the run so far, by their consequence."""

    safe: list[ConfigDifference] = field(default_factory=list)
    refused: list[ConfigDifference] = field(default_factory=list)
    changed_files: dict[str, str] = field(default_factory=dict)
    """Files of the package that are missing, or differ from what was copied and from what a session was
    forced to continue with; each with its present SHA-256, empty for a missing file."""
    inexact: list[str] = field(default_factory=list)
    """Reasons why the rest of the run is inexact although the change is allowed."""

    @property
    def needs_force(self) -> bool:
        """Whether the session is refused without ``--force``."""
        return bool(self.refused or self.changed_files)

    def reasons(self) -> list[str]:
        """Returns the reasons why the rest of the run is inexact, allowed or forced."""
        changed = [f"{name} has changed since it was copied" for name in self.changed_files]
        return [*self.inexact, *map(format_difference, self.refused), *changed]

    def require(self, *, force: bool) -> None:
        """Accepts a session with only safe differences, or with ``force``.

        Raises:
            Refused: Something else differs; the message names each setting with both values, and each file.
        """
        if not self.needs_force or force:
            return
        changed = [f"{name} (changed in the package)" for name in self.changed_files]
        raise Refused(
            "the rest of the run would not match the run so far: "
            + "; ".join([*map(format_difference, self.refused), *changed]),
            fix="undo it, start a new run"
            + (", give the settings to `roost fork`" if self.refused and not changed else "")
            + ", or use --force, which records it as inexact",
        )


def check(package: PackageFolder, overrides: Iterable[str]) -> ResumeGate:
    """Compares the present settings with those after ``overrides``, and the code with its digests.

    Raises:
        ConfigError: An override is invalid.
        NotFound: The package cannot be read.
    """
    before, kind = package.settings, PackageKind.of(package.request)
    after = with_overrides(package, before, overrides)
    found = nested_values.differences(before, after)
    if not checkpoint.ids(package.checkpoints):  # nothing so far that the rest must match
        return ResumeGate(safe=found, refused=[], changed_files={}, inexact=[])
    if kind is not PackageKind.DLNEST:
        _refuse_exceeded_schedules(found, after)
    return ResumeGate(
        safe=[one for one in found if is_safe(one.key, kind)],
        refused=[
            *(one for one in found if not is_safe(one.key, kind)),
            *_changed_archives(package, after, kind),
        ],
        changed_files=changed_files(package),
        inexact=[] if kind is PackageKind.DLNEST else _changed_length_reasons(found, after),
    )


def _changed_archives(
    package: PackageFolder, after: Mapping[str, Any], kind: PackageKind
) -> Iterator[ConfigDifference]:
    """Yields the digests of staged archives that are not those of the earlier sessions."""
    key = DLNEST_KEY if kind is PackageKind.DLNEST else STAGE_KEY
    stage = nested_values.value_at(after, tuple(key.split(".")))
    for name, old, new in staged_archives.changed_digests(package.path, stage, key=key):
        yield ConfigDifference(name, old, new)


def changed_files(package: PackageFolder) -> dict[str, str]:
    """Returns the copied files that have changed, except changes that a session was forced to continue with;
    each with its present SHA-256, empty for a missing file."""
    forced = package.forced_changes()
    found = {name: snapshot.file_digest(package.path / name) for name in package.changed_files()}
    return {name: digest for name, digest in found.items() if forced.get(name) != digest}


def is_safe(key: str, kind: PackageKind = PackageKind.TRAIN) -> bool:
    """Whether a dotted key of a package of this kind is one of `SAFE_SETTINGS`, or below one."""
    names: Sequence[str] = SAFE_SETTINGS
    if kind is PackageKind.DLNEST:
        names = [*(f"{SECTION}.{name}" for name in SAFE_SETTINGS), *_SAFE_KEYS]
    return any(key == name or key.startswith(name + ".") for name in names)


def format_difference(one: ConfigDifference) -> str:
    """Returns a difference as ``lr: 0.1 -> 0.2``."""
    return f"{one.key}: {_format_value(one.old)} -> {_format_value(one.new)}"


def _format_value(value: Any) -> str:
    return str(value) if value is ABSENT or isinstance(value, str) else repr(value)


def _changed_length_reasons(found: Iterable[ConfigDifference], after: Mapping[str, Any]) -> list[str]:
    """The reasons why a changed end is inexact: a schedule created for the old end keeps its old total."""
    moved = [one for one in found if one.key in LENGTH_SETTINGS]
    users = settings_using_total_steps(after) if moved else []
    reason = f"while {', '.join(users)} was created for the previous end"
    return [f"{format_difference(one)}, {reason}" for one in moved if users]


def _refuse_exceeded_schedules(found: Iterable[ConfigDifference], after: Mapping[str, Any]) -> None:
    """Refuses a later end for a schedule that fails in the step after its last one, and whose state keeps the
    length for which it was created.

    Raises:
        Refused: A OneCycleLR would be exceeded.
    """
    moved = [one for one in found if one.key in LENGTH_SETTINGS and _is_later(one)]
    names = [
        key for key, value in _texts(after.get("optimizers") or {}, "optimizers") if _is_one_cycle(key, value)
    ]
    if moved and names:
        raise Refused(
            f"{format_difference(moved[0])}: a OneCycleLR keeps the number of steps for which it was "
            "created, and fails in the step after them",
            setting=names[0].removesuffix(".class"),
            fix=f"use `roost fork` with {moved[0].key}={moved[0].new}: in the new package the schedule has "
            "the new length (a number given as its total_steps must be raised, too)",
        )


def _is_later(one: ConfigDifference) -> bool:
    numbers = isinstance(one.old, int | float) and isinstance(one.new, int | float)
    return one.new > one.old if numbers else True


def _is_one_cycle(key: str, value: str) -> bool:
    return ".scheduler." in key and key.endswith(".class") and value.rpartition(".")[2] == "OneCycleLR"


def settings_using_total_steps(values: Mapping[str, Any]) -> list[str]:
    """Returns the dotted settings that refer to ``${total_steps}``."""
    return [key for key, value in _texts(values, "") if _TOTAL_STEPS.search(value)]


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    items = (
        enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, Mapping) else ()
    )
    for name, inner in items:
        yield from _texts(inner, f"{key}.{name}" if key else str(name))
