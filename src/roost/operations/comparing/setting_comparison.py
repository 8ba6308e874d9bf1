"""The settings in which runs differ."""

from __future__ import annotations

from collections.abc import Sequence

from roost.config.values import nested_values
from roost.config.values.nested_values import ABSENT
from roost.operations.comparing.compared_run import RunContent
from roost.operations.comparing.comparison import SettingDifference
from roost.package.resume import resume_gate

_MAX_ORIGINS = 8
"""For more runs it is not looked up where each setting was set."""
_ABOUT_THE_RUN = ("description", "save_root", "roost.description", "roost.save_root")
"""Settings that only name a run or its place."""


def compare_settings(runs: Sequence[RunContent], *, is_all: bool = False) -> list[SettingDifference]:
    """Returns the settings that differ between the runs whose settings are known: those first that may change
    the weights, that most runs have, and that are at the top of the config.

    Args:
        runs: The runs.
        is_all: Whether to return equal settings, too.
    """
    known = [one for one in runs if one.settings is not None]
    if not known:
        return []
    first = known[0].settings or {}
    names = {one.key for run in known[1:] for one in nested_values.differences(first, run.settings or {})}
    if is_all:
        names.update(name for run in known for name in run.flat_settings)
    found = [_difference(name, runs) for name in names]
    return sorted(
        found, key=lambda one: (not one.changes_weights, len(one.absent), one.name.count("."), one.name)
    )


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
