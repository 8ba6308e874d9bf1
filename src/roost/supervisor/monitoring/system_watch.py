"""Adds what cards, processes and host do to the package while a session runs.

Nothing here may fail or delay the session: what cannot be measured or written becomes a gap with its reason.
"""

# Standard library only

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from roost.devices.sampling import sample_ring
from roost.devices.sampling.host_counters import host_facts
from roost.devices.sampling.machine_columns import CARD_COLUMNS, HOST, HOST_COLUMNS
from roost.devices.sampling.machine_sampler import MachineSampler
from roost.devices.sampling.sample_ring import LiveSamples, MachineSample, RingHeader
from roost.package.results import system_metrics
from roost.package.results.system_metrics import SystemGap, SystemRow
from roost.package.results.system_summary import SystemSummary
from roost.package.session_schema import SystemUse
from roost.supervisor.monitoring.memory_peak import TreeUse, ended_cpu_seconds
from roost.supervisor.monitoring.system_file import SystemFile
from roost.supervisor.session_spec import SessionSpec

_SECONDS = 1.0
_MAX_SECONDS = 4.0
"""The interval where rows are longer than that."""
_ELECTION_SECONDS = 1.0
"""How long after that this process may begin to sample the machine."""
_SHORT_GAP_SECONDS = 15.0
"""A shorter gap is in the file only: a process takes so long to begin, or to take over."""
_MB = 2**20


class SystemWatch:
    """Measures one session.

    Args:
        spec: The session.
        started: When it started, monotonic seconds.
        start_use: What its processes had used by then.

    Raises:
        OSError: The file cannot be made.
    """

    def __init__(self, spec: SessionSpec, *, started: float, start_use: TreeUse) -> None:
        self._spec = spec
        self._names = system_metrics.column_names(len(spec.card_ids))
        self._file = SystemFile(Path(spec.system), self._names)
        self._summary = SystemSummary(self._names)
        self._sampler = MachineSampler(spec.samples, spec.env)
        self._live = LiveSamples(spec.samples)
        self._header: RingHeader | None = None
        self._places: list[int | None] = []
        self._cards: list[dict[str, Any]] = [{"id": card} for card in spec.card_ids]
        self._host = host_facts()
        self._file.add_facts({"cards": self._cards, "host": self._host})
        self._tree = _TreeRates(start_use)
        # A change of the clock moves none of the times of a session: they go on from its start.
        self._clock = time.time() - time.monotonic()
        self._row_began = self._next = started
        self._elects_at = time.monotonic() + _ELECTION_SECONDS
        self._gap: SystemGap | None = None
        self._trouble = ""

    @property
    def child_pids(self) -> list[int]:
        """Processes that this class has started: no part of the session."""
        return self._sampler.child_pids

    def tick(self, now: float, use: TreeUse | None) -> float:
        """Measures if it is due; returns when to call it next (monotonic seconds).

        Args:
            now: Monotonic seconds.
            use: What the processes of the session use.
        """
        if now < self._next:
            return self._next
        if self._sampler.is_sampling or now >= self._elects_at:
            self._sampler.sample(self._live.missed_seconds())
        samples = self._live.new()
        if samples:
            self._note_header()
        seconds = now - self._row_began
        if seconds > 0:
            self._add_row(now, seconds, samples, use)
            self._row_began = now
        self._file.work(now)
        interval = _SECONDS if self._sampler.is_sampling else min(_MAX_SECONDS, self._file.row_seconds)
        self._next = now + max(_SECONDS, interval)
        return self._next

    def finish(self, now: float, use: TreeUse | None) -> SystemUse:
        """Writes the last row; returns the numbers for the session record."""
        self._sampler.close()
        if now > self._row_began:
            self._add_row(now, now - self._row_began, self._live.new(), use)
        self._live.close()
        self._end_gap()
        self._file.finish()
        found = self._summary.result(self._cards, self._host, self._spec.env)
        if use is not None:
            spent = self._sampler.spent_cpu_seconds
            total = TreeUse(now, ended_cpu_seconds() - spent, 0, use.read_bytes, use.written_bytes, 0)
            found.cpu_seconds, found.read_mb, found.written_mb = self._tree.totals(total)
        trouble = [self._file.error and f"some rows could not be written: {self._file.error}", self._trouble]
        if any(trouble) and not found.trouble:
            found.trouble = "; ".join(filter(None, trouble))
        return found

    def _note_header(self) -> None:
        header = self._live.header
        if header is None or header is self._header:
            return
        self._header = header
        at = {name: place for place, name in enumerate(header.columns())}
        names = [f"{card}/{name}" for card in self._spec.card_ids for name in CARD_COLUMNS]
        names += [""] * len(system_metrics.SESSION_COLUMNS)
        names += [f"{HOST}/{name}" for name in HOST_COLUMNS]
        self._places = [at.get(name) for name in names]
        known = {card["id"]: card for card in header.cards}
        cards = [
            {name: known[id][name] for name in ("id", "name", "total_mb")} if id in known else {"id": id}
            for id in self._spec.card_ids
        ]
        if cards != self._cards:
            self._cards = cards
            self._file.add_facts({"cards": cards})

    def _add_row(
        self, now: float, seconds: float, samples: Sequence[MachineSample], use: TreeUse | None
    ) -> None:
        values: list[float | None] = [None] * len(self._names)
        if samples:
            values = [_mean(samples, at) for at in self._places]
        first = len(self._spec.card_ids) * len(CARD_COLUMNS)
        values[first : first + len(system_metrics.SESSION_COLUMNS)] = self._tree.rates(use)
        row = SystemRow(now + self._clock, seconds, values, values)
        self._file.add(row)
        self._summary.add(row)
        self._note_gap(row, self._missing(samples))

    def _missing(self, samples: Sequence[MachineSample]) -> str:
        """Why this row lacks values; empty: it lacks none that could be expected."""
        if not samples:
            if not self._live.missed_seconds():
                return ""  # it comes with the next row
            return f"{sample_ring.NO_SAMPLE}{self._sampler.error and f': {self._sampler.error}'}"
        if self._spec.card_ids and (reason := sample_ring.STATES[samples[-1].state]):
            return reason
        missing = [
            id for id, card in zip(self._spec.card_ids, self._cards, strict=True) if "name" not in card
        ]
        return f"the driver does not report the card {missing[0]}" if missing else ""

    def _note_gap(self, row: SystemRow, reason: str) -> None:
        if self._gap is not None and self._gap.reason != reason:
            self._end_gap()
        if reason:
            begin = self._gap.begin if self._gap is not None else row.time - row.seconds
            self._gap = SystemGap(begin, row.time, reason)

    def _end_gap(self) -> None:
        if self._gap is not None:
            self._file.add_gap(self._gap)
            seconds = self._gap.end - self._gap.begin
            if seconds > _SHORT_GAP_SECONDS:
                self._trouble = f"{self._gap.reason} (for {seconds:.0f} s)"
            self._gap = None


class _TreeRates:
    """The rates of a session between two samples of its processes.

    Args:
        start: What they had used before.
    """

    def __init__(self, start: TreeUse) -> None:
        self._start = self._before = start
        self._rates: list[float | None] = [None] * len(system_metrics.SESSION_COLUMNS)

    def rates(self, use: TreeUse | None) -> Iterable[float | None]:
        """Returns one value for each of `system_metrics.SESSION_COLUMNS`; those of before, if there is no new
        sample."""
        before = self._before
        if use is not None and use.seconds > before.seconds:
            seconds, self._before = use.seconds - before.seconds, use
            self._rates = [
                max(0.0, use.cpu_seconds - before.cpu_seconds) / seconds,
                use.memory_mb,
                max(0, use.read_bytes - before.read_bytes) / seconds / _MB,
                max(0, use.written_bytes - before.written_bytes) / seconds / _MB,
                float(use.num_processes),
            ]
        return self._rates

    def totals(self, use: TreeUse) -> tuple[float, float, float]:
        """Returns the processor time and the MB that were read and written since the start."""
        return (
            round(max(0.0, use.cpu_seconds - self._start.cpu_seconds), 2),
            round(max(0, use.read_bytes - self._start.read_bytes) / _MB, 1),
            round(max(0, use.written_bytes - self._start.written_bytes) / _MB, 1),
        )


def _mean(samples: Sequence[MachineSample], at: int | None) -> float | None:
    if at is None:
        return None
    found = [sample.values[at] for sample in samples if not math.isnan(sample.values[at])]
    return sum(found) / len(found) if found else None
