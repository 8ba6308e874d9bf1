"""The labels of the runs in a plot: the settings in which they differ."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roost.operations.listing.list_packages import FoundPackages, find_packages
from roost.operations.listing.package_row import FoundPackage
from roost.operations.listing.run_groups import SEED, common_values
from roost.operations.listing.run_listing import short_names, varying_settings

_MAX_SETTINGS = 4
"""With more of them, a label is the name of the package."""
_MAX_VALUE = 24
"""Characters of a value."""


class RunLabel(NamedTuple):
    """The label of a run."""

    setting: str
    """The settings without the seed; the package's name if they do not distinguish it."""
    seed: str
    """The seed; empty if all runs have the same."""

    @property
    def text(self) -> str:
        """Returns the whole label."""
        return " ".join(filter(None, self))


def read_table(paths: Sequence[Path]) -> FoundPackages:
    """Returns packages, in their order, with the settings and metrics of all packages beside them."""
    found = find_packages(list(dict.fromkeys(path.absolute().parent for path in paths)))
    by_place = {os.path.realpath(one.folder / one.name): one for one in found.selected}
    if any(os.path.realpath(path) not in by_place for path in paths):  # for example inside a package
        found = find_packages(paths)
        by_place = {os.path.realpath(one.folder / one.name): one for one in found.selected}
    return FoundPackages([by_place[os.path.realpath(path)] for path in paths], found.columns)


def run_labels(found: FoundPackages) -> list[RunLabel]:
    """Returns the labels of several packages. Packages of which only the seeds differ share ``setting``."""
    packages = found.selected
    varying = varying_settings(found.columns, packages)
    names = short_names(varying, found.columns.settings)
    seeds = [name for name in varying if name.rpartition(".")[2] == SEED]
    others = [name for name in varying if name not in seeds]
    labels = [
        RunLabel(
            format_values({names[name]: varying[name][at] for name in others})
            or packages[at].entry.summary.name,
            format_values({names[name]: varying[name][at] for name in seeds}),
        )
        for at in range(len(packages))
    ]
    if seeds and not others:
        labels = [RunLabel("", label.seed) for label in labels]
    if len(others) > _MAX_SETTINGS:
        labels = _by_name(packages, labels)
    count = Counter(labels)
    return [
        label
        if count[label] == 1
        else RunLabel(f"{label.setting} {one.entry.summary.name}".strip(), label.seed)
        if label.setting != one.entry.summary.name
        else label
        for one, label in zip(packages, labels, strict=True)
    ]


def _by_name(packages: Sequence[FoundPackage], labels: Sequence[RunLabel]) -> list[RunLabel]:
    """Returns labels with the name of the first package of each setting in place of the setting."""
    first: dict[str, str] = {}
    for one, label in zip(packages, labels, strict=True):
        first.setdefault(label.setting, one.entry.summary.name)
    return [RunLabel(first[label.setting], label.seed) for label in labels]


def group_labels(found: FoundPackages, key: str) -> list[str]:
    """Returns the label of the group of each package: what `roost ls --group-by` shows.

    Raises:
        UsageError: No package has the key.
    """
    return [format_values(values) or "all runs" for values in common_values(found, key)]


def format_values(values: Mapping[str, Any]) -> str:
    """Returns ``lr=0.1 width=8``, without the settings that a run does not have."""
    return " ".join(f"{name}={format_value(one)}" for name, one in values.items() if one is not None)


def format_value(value: Any) -> str:
    """Returns a value of a setting, of limited length."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 1] + "…"
