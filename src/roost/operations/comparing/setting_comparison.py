"""The settings in which runs differ."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from roost.config.values import nested_values
from roost.config.values.nested_values import ABSENT
from roost.operations.comparing.compared_run import RunContent
from roost.operations.comparing.comparison import SettingDifference
from roost.package.kinds import PackageKind
from roost.package.resume import resume_gate

_MAX_ORIGINS = 8
"""For more runs it is not looked up where each setting was set."""
_ABOUT_THE_RUN = ("description", "save_root", "roost.description", "roost.save_root")
"""Settings that only name a run or its place."""


def compare_settings(runs: Sequence[RunContent], *, is_all: bool = False) -> list[SettingDifference]:
    """Returns the settings that differ between the runs whose settings are known: those first that may change
    the weights, that most runs have, and that are at the top of the config. What no imported run has recorded
    is compared between the others only.

    Args:
        runs: The runs.
        is_all: Whether to return equal settings, too.
    """
    known = [one for one in runs if one.settings is not None]
    if not known:
        return []
    names = _differing(known)
    if any(one.kind is PackageKind.IMPORT for one in known):
        names = {name for name in names if _is_imported(name, known)}
        names |= _differing([one for one in known if one.kind is not PackageKind.IMPORT])
    if is_all:
        names.update(name for run in known for name in run.flat_settings)
    found = [_difference(name, runs) for name in names]
    return sorted(
        found, key=lambda one: (not one.changes_weights, len(one.absent), one.name.count("."), one.name)
    )


def _differing(runs: Sequence[RunContent]) -> set[str]:
    first = (runs[0].settings or {}) if runs else {}
    return {one.key for run in runs[1:] for one in nested_values.differences(first, run.settings or {})}


def _is_imported(name: str, runs: Sequence[RunContent]) -> bool:
    return any(name in run.flat_settings for run in runs if run.kind is PackageKind.IMPORT)


def num_equal(runs: Sequence[RunContent], differing: Collection[str]) -> int:
    """Returns how many settings all runs have, and in which they do not differ."""
    has = [set(run.flat_settings) for run in runs if run.settings is not None]
    names = set[str]().union(*has)
    if any(run.kind is PackageKind.IMPORT for run in runs):
        names.intersection_update(*has)
    return len(names - set(differing))


def _difference(name: str, runs: Sequence[RunContent]) -> SettingDifference:
    values = [one.flat_settings.get(name, ABSENT) for one in runs]
    return SettingDifference(
        name=name,
        values=[None if value is ABSENT else value for value in values],
        absent=[at for at, value in enumerate(values) if value is ABSENT],
        origins=[one.origin(name) for one in runs] if len(runs) <= _MAX_ORIGINS else [],
        changes_weights=not all(resume_gate.is_safe(name, one.kind) for one in runs),
    )


def is_seed(one: SettingDifference) -> bool:
    """Whether a setting is a seed."""
    return one.name.rpartition(".")[2] == "seed"


def differs_in_effect(one: SettingDifference) -> bool:
    """Whether a setting is more than the name or the place of a run."""
    return one.name not in _ABOUT_THE_RUN
