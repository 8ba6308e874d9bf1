"""The history of a run while it grows: each byte of its records is read once, however long they are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from roost.package import records
from roost.package.records import Columns, Follower, Row


class Growing:
    """What `records.fold` gives of a ``records`` folder, but for its rows, kept up to date.

    Args:
        folder: Of a package; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._followers: dict[int, Follower] = {}
        self.columns = Columns()

    def update(self) -> bool:
        """Reads on; gives whether anything came."""
        came = False
        for session, row in self._new_rows():
            came = True
            if "start_step" in row:
                self._begin(session, row["start_step"])
            else:
                for name, value in records.values(row).items():
                    records.put(self.columns.of(name), name, row["step"], value)
        return came

    def _new_rows(self) -> Iterator[tuple[int, Row]]:
        for path in self._folder.glob("*.jsonl") if self._folder.is_dir() else ():
            if path.stem.isdecimal():
                self._followers.setdefault(int(path.stem), Follower(path))
        for session, follower in sorted(self._followers.items()):
            yield from ((session, row) for row in follower.new_rows())

    def _begin(self, session: int, step: int) -> None:
        """A session goes on from a step, or goes back to it: what was recorded after it counts no more."""
        for series in (self.columns.series, self.columns.perf, self.columns.stats):
            for name in list(series):
                steps, values = series[name]
                kept = bisect_right(steps, step)
                del steps[kept:], values[kept:]
                if not steps:
                    del series[name]
        starts = dict(self.columns.starts)
        starts[session] = min(step, starts.get(session, step))
        self.columns.starts = sorted(starts.items())
