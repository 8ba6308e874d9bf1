"""The metrics of runs: newest values, best values, and those at a step that all runs have reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from roost.base.errors import NotFound
from roost.base.text import metric_direction
from roost.base.text.suggestions import did_you_mean
from roost.base.text.word_list import join_names
from roost.config.dlnest.dlnest_settings import SECTION
from roost.operations.comparing.compared_run import RunContent
from roost.operations.comparing.comparison import MetricComparison, Mode
from roost.operations.curves import history_cache
from roost.operations.curves.history_cache import DamagedCache, History, Series
from roost.operations.plots.plot_panels import matches_any, with_groups
from roost.package import records

_SPLITS = {"valid": 1, "test": 2, "train": 3}
_MAX_VALUES = 200_000
"""Of many runs with many metrics, the most important metrics are compared."""
_MAX_LISTED = 12


class _Summary(NamedTuple):
    """The values of one metric of one run, each with its step."""

    last: float
    last_step: int
    best: float | None
    best_step: int | None
    at: float | None
    at_step: int | None


class RunRecords:
    """The recorded values of a run, read column by column. What cannot be read counts as not recorded.

    Args:
        package: The package.
    """

    def __init__(self, package: Path) -> None:
        self._folder = package / "records"
        self._history = History(self._folder)

    @property
    def names(self) -> list[str]:
        """The names of all recorded values."""
        return self._history.names

    def series(self, name: str) -> Series:
        """Returns the steps, ascending, and the values of one name; both empty if it is not recorded."""
        for is_last in (False, True):
            try:
                return self._history.series(name)
            except KeyError:  # the run went back to an earlier step meanwhile
                break
            except (DamagedCache, OSError):  # OSError: another process has replaced the cache
                if not is_last:
                    history_cache.remove_cached(self._folder)
                self._history = History(self._folder)
        return np.zeros(0, np.int64), np.zeros(0)


class MetricTable:
    """Collects the metrics of runs one after the other, so that the columns of one run at a time are in
    memory.

    Args:
        runs: All runs.
        step: The step of the common values; None: the newest one that all runs with records have reached.
        names: The requested metrics, by name or pattern; empty: all but times and statistics.
    """

    def __init__(self, runs: Sequence[RunContent], *, step: int | None, names: Sequence[str] = ()) -> None:
        self._rules = _monitor_rules(run.settings for run in runs if run.settings is not None)
        self._names, self._num_runs = names, len(runs)
        reached = [last for run in runs if (last := _last_step(run.package.path / "records")) is not None]
        self.step = step if step is not None else min(reached, default=None)
        self._summaries: dict[str, dict[int, _Summary]] = {}
        self._most = max(1, _MAX_VALUES // max(1, len(runs)))
        self._left_out: set[str] = set()
        self._known: set[str] = set()

    def add(self, position: int, run: RunContent) -> None:
        """Reads the metrics of a run."""
        found = RunRecords(run.package.path)
        self._known.update(found.names)
        selected = sorted(filter(self._is_selected, found.names), key=self._importance)
        self._left_out.update(selected[self._most :])
        for name in selected[: self._most]:
            steps, values = found.series(name)
            if len(steps):
                one = _summarize(steps, values, self._mode(name), self.step)
                self._summaries.setdefault(name, {})[position] = one

    def _is_selected(self, name: str) -> bool:
        return matches_any(name, self._names) if self._names else records.is_metric(name)

    def _mode(self, name: str) -> Mode | None:
        return self._rules[name] if name in self._rules else metric_direction.usual_mode(name)

    def _importance(self, name: str) -> tuple[bool, int, bool, str]:
        split, _, metric = name.rpartition("/")
        return name not in self._rules, _SPLITS.get(split.partition("/")[0], 4), metric != "loss", name

    def require_names(self) -> None:
        """Checks that each requested name or pattern is of a recorded metric.

        Raises:
            NotFound: No run has recorded one.
        """
        for name in self._names:
            if self._known and not any(matches_any(one, [name]) for one in self._known):
                near = did_you_mean(name, with_groups(self._known))
                known = sorted(self._known, key=lambda one: (not records.is_metric(one), one))
                fix = near or f"there are: {join_names(known, _MAX_LISTED)}"
                raise NotFound("no metric of that name is recorded", received=name, fix=fix)

    def comparisons(self) -> list[MetricComparison]:
        """Returns the metrics of all runs, the most important first: those by which a run decides, then those
        of validation, test and training."""
        names = sorted(self._summaries, key=self._importance)
        self._left_out.update(names[self._most :])
        return [self._comparison(name) for name in names[: self._most]]

    @property
    def num_left_out(self) -> int:
        """The number of metrics that are not compared because there are too many."""
        return len(self._left_out)

    def _comparison(self, name: str) -> MetricComparison:
        found = self._summaries[name]
        columns: list[list[Any]] = [
            [getattr(found[at], key) if at in found else None for at in range(self._num_runs)]
            for key in _Summary._fields
        ]
        last, last_steps, best, best_steps, values, steps = columns
        return MetricComparison(
            name=name, mode=self._mode(name), monitored=name in self._rules, last=last, last_steps=last_steps,
            best=best, best_steps=best_steps, at=values, at_steps=steps,
        )  # fmt: skip


def _summarize(steps: Any, values: Any, mode: Mode | None, step: int | None) -> _Summary:
    best: tuple[float, int] | tuple[None, None] = (None, None)
    finite = np.flatnonzero(np.isfinite(values)) if mode is not None else ()
    if len(finite):
        found = values[finite]
        at = finite[np.argmin(found) if mode == "min" else np.argmax(found)]
        best = (float(values[at]), int(steps[at]))
    common: tuple[float, int] | tuple[None, None] = (None, None)
    if step is not None and (end := int(np.searchsorted(steps, step, side="right"))):
        common = (float(values[end - 1]), int(steps[end - 1]))
    return _Summary(float(values[-1]), int(steps[-1]), *best, *common)


def _last_step(folder: Path) -> int | None:
    """Returns the step of the newest effective row, from the ends of the records files; None without rows."""
    before: int | None = None
    for path in reversed(history_cache.records_files(folder)):
        rows = [row for row in records.read_tail(path) if before is None or row["step"] <= before]
        start = records.start_step(path)
        if rows and start is not None:
            return int(rows[-1]["step"])
        before = start if before is None or start is None else min(before, start)
    return None


def _monitor_rules(settings: Iterable[Mapping[str, Any]]) -> dict[str, Mode | None]:
    """Returns the metrics by which runs select checkpoints or stop, with the mode; None: they disagree."""
    found: dict[str, Mode | None] = {}
    for name, mode in dict.fromkeys(rule for one in settings for rule in _rules(one)):
        found[name] = mode if found.get(name, mode) == mode else None
    return found


def _rules(settings: Mapping[str, Any]) -> Iterator[tuple[str, Mode]]:
    for values in (settings, settings.get(SECTION)):
        if not isinstance(values, Mapping):
            continue
        section = values.get("checkpoint")
        rules = section.get("best") if isinstance(section, Mapping) else None
        for rule in [*(rules if isinstance(rules, list) else []), values.get("early_stopping")]:
            name = rule.get("monitor") if isinstance(rule, Mapping) else None
            if isinstance(name, str):
                yield name, "max" if rule.get("mode") == "max" else "min"
