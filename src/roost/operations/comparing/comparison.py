"""The result types of `roost.operations.comparing.compare`. Apart from it: that module needs NumPy."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from roost.operations.listing.package_row import PackageSummary
from roost.package.lineage import SettingChange

Mode = Literal["min", "max"]
"""Whether smaller or larger values of a metric are better."""


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a comparison."""

    path: str
    summary: PackageSummary
    inexact: list[str]
    """The reasons why the run may not have the bits of an uninterrupted one."""
    data_order: str | None
    """A digest of the order of the training samples in the first epoch; None: it is not known, as for a fork,
    or a set without indices."""
    unreadable: list[str]
    """What could not be read and is therefore not compared."""


class SettingDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A setting in which runs differ."""

    name: str
    values: list[Any]
    """The value of each run."""
    absent: list[int]
    """The positions of the runs that do not have the setting; their value is None."""
    origins: list[str | None]
    """Where each run has set it; None for a default. Empty for many runs."""
    changes_weights: bool
    """Whether the setting may change the weights; False for those that may change between two sessions."""


class EnvironmentDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A fact about software or hardware in which runs differ."""

    name: str
    """A name such as ``torch``, ``driver``, ``GPUs``; of an installed package ``package NAME``."""
    values: list[str | None]
    """The value of each run; None: it has none, or it is not known."""
    not_installed: list[int] = []
    """Of an installed package, the positions of the runs that are known not to have had it."""


class ForkRelation(msgspec.Struct, frozen=True, kw_only=True):
    """A run that began with a checkpoint of another one of the comparison."""

    fork: int
    """The position of the fork."""
    parent: int
    """The position of its parent, or of a parent of its parent."""
    step: int
    """The step at which their common part ends."""
    changed: list[SettingChange]
    """The settings that the fork was requested to change; empty for a parent of its parent."""


class CommonParent(msgspec.Struct, frozen=True, kw_only=True):
    """The package from which all runs were forked."""

    package: str
    step: int
    """The step at which the common part of all ends."""


class RunRelation(msgspec.Struct, frozen=True, kw_only=True):
    """How the runs of a comparison are related."""

    sweep: str | None
    """The id of the sweep of all runs."""
    sweep_name: str | None
    """The name that it was given, if it was."""
    forks: list[ForkRelation]
    common_parent: CommonParent | None
    same_settings: bool | None
    """Whether all settings but name and place are equal; None: those of a run are not known."""
    only_seed: bool
    """Whether only seeds differ: settings and code are equal otherwise."""


class MetricComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of several runs. Each list has an entry for each run; None where it has no value. In JSON a
    value that is not finite is null, too."""

    name: str
    mode: Mode | None
    """Whether smaller or larger values are better; None: unknown, so there is no best value."""
    monitored: bool
    """Whether a run selects its best checkpoint or stops by it."""
    last: list[float | None]
    """The newest values."""
    last_steps: list[int | None]
    best: list[float | None]
    """The best recorded finite values."""
    best_steps: list[int | None]
    at: list[float | None]
    """The newest values up to the step of the comparison."""
    at_steps: list[int | None]


class PartedMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric with different values in two runs."""

    name: str
    values: list[float]
    """In JSON a value that is not finite is null."""


class SessionStart(msgspec.Struct, frozen=True, kw_only=True):
    """A session that began with, or after, the last equal values and before the first different ones."""

    run: int
    """The position of the run."""
    session: int
    """Its number."""
    step: int
    """The step from which it continued."""
    host: str | None
    overrides: list[str]


class CurveParting(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of all values that two runs have recorded for the same steps."""

    compared: int
    """The number of pairs of values; a mean over different steps is not compared."""
    equal_until: int | None
    """The last step up to which all pairs are equal; None: the first pair differs, or there is none."""
    step: int | None
    """The first step with a pair that differs; None: there is none."""
    metrics: list[PartedMetric]
    """The metrics that differ at this step, at most 20."""
    num_metrics: int
    """The number of metrics that differ at this step."""
    starts: list[SessionStart]
    """Sessions that may be the reason."""


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A copied file that differs between two versions of the code."""

    path: str
    kind: Literal["only in first", "only in second", "changed"]
    added: int | None = None
    """The number of lines that only the second version has; None: the lines were not compared."""
    removed: int | None = None
    """The number of lines that only the first version has."""
    note: str | None = None
    """Why the lines were not compared, or may not be those that ran."""
    diff: list[str] | None = None
    """The difference as by ``diff -u``, without the names of the files; None: it was not requested, or there
    are no lines to compare."""


class CodeVersion(msgspec.Struct, frozen=True, kw_only=True):
    """Runs with the same code."""

    digest: str
    """A digest of the paths and contents of all copied files."""
    runs: list[int]
    """The positions of the runs."""
    files: int
    """The number of copied files."""
    changed: list[str]
    """The paths of the files that differ from those of the first version."""


class CodeComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of the code of some runs."""

    versions: list[CodeVersion]
    """The one that most runs have comes first, except between two runs."""
    unknown: list[int]
    """The positions of the runs whose code is not known."""
    files: list[FileChange]
    """What differs between two versions; empty if there are more."""

    @property
    def is_same(self) -> bool | None:
        """Whether all runs have the same code; None: that of a run is not known."""
        if len(self.versions) > 1:
            return False
        return None if self.unknown else True


class PackageComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between runs. All lists of values have an entry for each run, in the order of ``runs``."""

    runs: list[ComparedRun]
    relation: RunRelation
    settings: list[SettingDifference]
    num_equal_settings: int
    """The number of settings that all runs have with the same value."""
    step: int | None
    """The step of the values ``at``: the requested one, or the last one that all runs have reached."""
    metrics: list[MetricComparison]
    num_metrics_left_out: int
    """The number of metrics that were not compared because there are too many."""
    curves: CurveParting | None
    """Where the recorded values part; None unless two runs are compared."""
    code: CodeComparison
    environment: list[EnvironmentDifference]

    def __repr__(self) -> str:
        from roost.operations.comparing import comparison_table  # for a person only

        return comparison_table.to_text(self)

    def _repr_html_(self) -> str:
        """Returns the table for notebooks."""
        from roost.operations.comparing import comparison_table

        return comparison_table.to_html(self)
