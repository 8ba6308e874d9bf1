"""The gate of ``continue``: what differs from the run so far, and whether it may without ``--force``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from roost.base.errors import Refused
from roost.config import layers
from roost.config.layers import ConfigDifference
from roost.package import snapshot
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder

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
    "options",
    "checkpoint",
    "data.num_workers",
    "data.valid.num_workers",
    "data.test.num_workers",
    "data.prefetch",
    "data.loader_timeout",
    "limits",
    "devices",
    "strategy",
    "rank_timeout",
    "on_non_finite",
    "on_step_error",
    "max_skipped_steps",
)
"""Settings, sections with all they hold, that may change between two sessions: the weights take the same way.
They say when a run ends, what it keeps, shows and writes down, and what a step that fails does; or on what it
computes, and the worker says what of that is inexact. Everything else, your own keys too, is refused without
``--force``."""

LENGTH_SETTINGS = frozenset({"max_epochs", "max_steps"})
_TOTAL_STEPS = re.compile(r"\$\{\s*total_steps\s*\}")


@dataclass(frozen=True)
class ResumeGate:
    """What differs, sorted by what it means."""

    safe: list[ConfigDifference] = field(default_factory=list)
    refused: list[ConfigDifference] = field(default_factory=list)
    changed_files: dict[str, str] = field(default_factory=dict)
    """Files of the package that are gone or hold something else than what was copied, or than what a session
    was forced to go on with; each with its sha256 now, empty for one that is gone."""
    inexact: list[str] = field(default_factory=list)
    """Why the rest of the run is another one than it would have been, though it is allowed."""

    @property
    def needs_force(self) -> bool:
        """Whether it is refused without ``--force``."""
        return bool(self.refused or self.changed_files)

    def reasons(self) -> list[str]:
        """What is inexact, in words: allowed or forced."""
        changed = [f"{name} has changed since it was copied" for name in self.changed_files]
        return [*self.inexact, *map(format_difference, self.refused), *changed]

    def require(self, *, force: bool) -> None:
        """Lets pass what is safe, or forced.

        Raises:
            Refused: Something else differs; names each setting with both values, and each file.
        """
        if not self.needs_force or force:
            return
        changed = [f"{name} (changed in the package)" for name in self.changed_files]
        raise Refused(
            "the rest of the run would not fit what went before: "
            + "; ".join([*map(format_difference, self.refused), *changed]),
            fix="undo it, start a new run, or use --force, which records it as inexact",
        )


def check(package: PackageFolder, overrides: Iterable[str]) -> ResumeGate:
    """Compares the settings so far with what ``overrides`` make of them, and the code with its hashes.

    Raises:
        ConfigError: An override does not fit.
        NotFound: The package cannot be read.
    """
    before = package.settings()
    after = layers.apply_overrides(before, overrides)
    found = layers.differences(before, after)
    if not checkpoint.ids(package.checkpoints):  # nothing went before that the rest must fit
        return ResumeGate(safe=found, refused=[], changed_files={}, inexact=[])
    return ResumeGate(
        safe=[one for one in found if is_safe(one.key)],
        refused=[one for one in found if not is_safe(one.key)],
        changed_files=changed_files(package),
        inexact=_changed_length_reasons(found, after),
    )


def changed_files(package: PackageFolder) -> dict[str, str]:
    """The copied files that hold something else than they did, and no session was forced to go on so; each
    with its sha256 now, empty for one that is gone."""
    forced = package.forced()
    found = {name: snapshot.file_digest(package.path / name) for name in package.changed()}
    return {name: digest for name, digest in found.items() if forced.get(name) != digest}


def is_safe(key: str) -> bool:
    """Whether a dotted key is one of `SAFE_SETTINGS`, or inside one."""
    return any(key == name or key.startswith(name + ".") for name in SAFE_SETTINGS)


def format_difference(one: ConfigDifference) -> str:
    """``lr: 0.1 -> 0.2``."""
    return f"{one.key}: {_format_value(one.old)} -> {_format_value(one.new)}"


def _format_value(value: Any) -> str:
    return str(value) if value is layers.ABSENT or isinstance(value, str) else repr(value)


def _changed_length_reasons(found: Iterable[ConfigDifference], after: Mapping[str, Any]) -> list[str]:
    """A schedule that was laid out for one end does not know the new one: its state keeps the old total."""
    moved = [one for one in found if one.key in LENGTH_SETTINGS]
    users = settings_using_total_steps(after) if moved else []
    laid_out = f"while {', '.join(users)} was laid out for the end before"
    return [f"{format_difference(one)}, {laid_out}" for one in moved if users]


def settings_using_total_steps(values: Mapping[str, Any]) -> list[str]:
    """The settings that count the run's steps in all."""
    return [key for key, value in _texts(values, "") if _TOTAL_STEPS.search(value)]


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    items = (
        enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, Mapping) else ()
    )
    for name, inner in items:
        yield from _texts(inner, f"{key}.{name}" if key else str(name))
