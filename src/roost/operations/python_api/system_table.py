"""What the cards, the processes and the host of a package did, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.base.text.durations import format_duration
from roost.operations.python_api import tables
from roost.package.results import system_metrics

_OWN = ("time", "seconds", "session")


@dataclass(frozen=True, repr=False)
class SystemTable:
    """The metrics of the system over all sessions, a row for each second or, of long sessions, for each
    larger interval."""

    columns: dict[str, list[Any]]
    """``time`` (the end of the row, Unix seconds), ``seconds`` (its length), ``session``, and what was
    measured by name: ``gpu0/utilization``, ``session/cores``, ``host/memory_mb``; the mean of the row, None
    where it was not measured."""
    peaks: dict[str, list[Any]]
    """The largest value within each row, for the same names."""
    cards: dict[int, list[dict[str, Any]]]
    """The cards of each session (id, name, total_mb); ``gpu0`` is the first."""
    hosts: dict[int, dict[str, Any]]
    """The machine of each session: name, cores, memory_mb."""

    def __len__(self) -> int:
        return len(self.columns["time"])

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]

    def __repr__(self) -> str:
        return "\n".join([f"{self._title()}{':' if self.peaks else ''}", *tables.align(*self._table())])

    def _repr_html_(self) -> str:
        """Returns the summary for notebooks."""
        return tables.to_html(self._title(), *self._table(), [])

    def _title(self) -> str:
        sessions = len(set(self.columns["session"]))
        count = f"{len(self)} rows of {sessions} session{'' if sessions == 1 else 's'}"
        return f"{count}, {format_duration(sum(self.columns['seconds']))}"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Returns, for each column that was measured, its mean over the time and its peak."""
        lines = []
        for name, peaks in self.peaks.items():
            pairs = zip(self.columns[name], self.columns["seconds"], strict=True)
            known = [(value, seconds) for value, seconds in pairs if isinstance(value, int | float)]
            total = sum(seconds for _, seconds in known)
            if total:
                mean = sum(value * seconds for value, seconds in known) / total
                peak = max(one for one in (*peaks, *(value for value, _ in known)) if one is not None)
                lines.append([name, tables.format_cell(mean), tables.format_cell(peak)])
        return ["name", "mean", "peak"], lines

    def to_pandas(self) -> Any:
        """Returns the columns as a ``pandas.DataFrame``, indexed by the time.

        Raises:
            Refused: pandas is not installed.
        """
        return tables.to_pandas(self.columns, index="time")

    def to_arrow(self) -> Any:
        """Returns the columns as a ``pyarrow.Table``.

        Raises:
            Refused: pyarrow is not installed.
        """
        return tables.to_arrow(self.columns)


def read(package: Path) -> SystemTable:
    """Reads the metrics of a package; without rows for one that has none. Those of further machines are left
    out: `roost.package.results.system_metrics.read` has them."""
    sessions = [one for one in system_metrics.read(package).sessions if one.node == 0]
    names = list(dict.fromkeys(name for one in sessions for name in one.names))
    columns: dict[str, list[Any]] = {name: [] for name in (*_OWN, *names)}
    peaks: dict[str, list[Any]] = {name: [] for name in names}
    for one in sessions:
        columns["time"] += one.times
        columns["seconds"] += one.seconds
        columns["session"] += [one.session] * len(one.times)
        for name in names:
            missing: list[Any] = [None] * len(one.times)
            columns[name] += one.values.get(name, missing)
            peaks[name] += one.peaks.get(name, missing)
    return SystemTable(
        columns,
        peaks,
        {one.session: one.cards for one in sessions},
        {one.session: one.host for one in sessions},
    )
