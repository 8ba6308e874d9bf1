"""Candidates for a setting, measured in turn, and the choice among them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from roost.package.results.tuning_report import CandidateRates, TargetFinding, quartiles
from roost.worker.tuning.budget import Budget

MIN_GAIN = 1.05
"""A candidate must be so much faster than the present value; among the fastest, the first one wins that is
slower by no more."""
_MIN_QUARTILE = 1.03
"""So much faster must the lower quartile of its rounds be."""
ROUNDS, MIN_ROUNDS = 5, 3
"""The rounds that are planned, and those without which nothing is changed."""
_DECIDED = 1.25
"""With so much distance in every round no further round is needed."""
_FIRST_SHARE = 0.45
"""The part of the time after which no further candidate is taken: the others need further rounds."""
_MIN_BLOCK_SECONDS, _MAX_BLOCK_SECONDS = 0.15, 3.0
_MAX_IDLE = 2
"""The ascent ends after so many candidates in a row that gained nothing."""
_WORSE_AFTER_ONE, _WORSE = 0.5, 0.75
"""A candidate below this share of the fastest is measured no further: after one round, which may have been
disturbed, and after more."""

Value = int | str


class MeasuredBlock(NamedTuple):
    """The measurement of some steps."""

    rate: float
    """Samples per second."""
    memory_mb: float | None = None


class CandidateFailed(Exception):
    """A candidate cannot be measured, for a reason that its user should see."""


class CandidateChoice(NamedTuple):
    """The chosen value, and why."""

    value: Value
    reason: str


class CandidateRounds:
    """Measures candidates in rounds: each round measures every candidate once, so that a disturbance of the
    machine meets all of them.

    Args:
        measure: Measures one candidate for about so many seconds; raises `CandidateFailed`.
        present: The value of the config, which is measured first and never dropped.
        budget: No measurement begins that would probably not end within it.
        num_candidates: The number of candidates that the budget is planned for.
        least_seconds: The expected time of the first measurement.
        report: Prints a line about each measurement.
    """

    def __init__(
        self,
        measure: Callable[[Value, float], MeasuredBlock],
        present: Value,
        *,
        budget: Budget,
        num_candidates: int,
        least_seconds: float = 0.0,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._measure, self._present, self._budget, self._report = measure, present, budget, report
        planned = budget.seconds / (ROUNDS * max(1, num_candidates)) / 2  # half of it starts workers
        self._block_seconds = min(_MAX_BLOCK_SECONDS, max(_MIN_BLOCK_SECONDS, planned))
        self._first_seconds = max(self._block_seconds, least_seconds)
        self._expected_seconds: dict[Value, float] = {}
        self.candidates: dict[Value, CandidateRates] = {}

    def ascend(self, values: Iterable[Value]) -> None:
        """The first round: the present value, then the others in their order, until two in a row beyond the
        present value gain nothing, or one fails."""
        if not self._take(self._present):
            return
        best, idle = self.candidates[self._present].median, 0
        for value in values:
            if value in self.candidates:
                continue
            if self._is_first_share_over or not self._take(value) or not self.candidates[value].rates:
                return
            rate = self.candidates[value].median
            is_beyond = isinstance(value, str) or isinstance(self._present, str) or value > self._present
            best, idle = (rate, 0) if rate > best * MIN_GAIN else (best, idle + is_beyond)
            if idle == _MAX_IDLE:
                return

    def add(self, values: Iterable[Value]) -> None:
        """Measures further candidates once."""
        for value in values:
            if self._is_first_share_over or not self._take(value):
                return

    @property
    def _is_first_share_over(self) -> bool:
        return self._budget.left < (1 - _FIRST_SHARE) * self._budget.seconds

    def in_order(self) -> list[CandidateRates]:
        """Returns the candidates, numbers ascending."""
        return sorted(self.candidates.values(), key=lambda one: (isinstance(one.value, str), one.value))

    def repeat(self) -> None:
        """Measures the candidates again, until each has `ROUNDS` or the budget ends. Clearly worse ones are
        dropped; if the time does not suffice for `MIN_ROUNDS` of the others, so are the slower of these."""
        if self._present not in self._expected_seconds:
            return
        for number in range(1, ROUNDS):
            self._drop_worse()
            if number == 1:
                self._drop_unaffordable()
            if number >= MIN_ROUNDS and self._is_decided():
                return
            for value in self._remaining():
                if not self._take(value):
                    return

    def _is_decided(self) -> bool:
        """Whether one candidate was far faster than all others in every round, or none faster than the
        present value."""
        now = self.candidates[self._present]
        found = [self.candidates[value].ratios(now) for value in self._remaining() if value != self._present]
        found.sort(key=statistics.median, reverse=True)
        if not found or max(map(max, found)) < 1:
            return True
        runner_up = statistics.median(found[1]) if len(found) > 1 else 1.0
        return min(found[0]) >= _DECIDED * max(1.0, runner_up)

    def _remaining(self) -> list[Value]:
        return [value for value, found in self.candidates.items() if found.rates and not found.note]

    def _drop_worse(self) -> None:
        best = max((one.median for one in self.candidates.values()), default=0.0)
        for value in self._remaining():
            found = self.candidates[value]
            limit = _WORSE_AFTER_ONE if len(found.rates) == 1 else _WORSE
            if value != self._present and found.median < limit * best:
                found.note = "clearly slower: measured no further"

    def _drop_unaffordable(self) -> None:
        left = self._budget.left / (MIN_ROUNDS - 1) - self._expected_seconds[self._present]
        others = [value for value in self._remaining() if value != self._present]
        others.sort(key=lambda value: self.candidates[value].median, reverse=True)
        for number, value in enumerate(others):
            left -= self._expected_seconds[value]
            if left < 0 and number:  # the fastest one is kept in any case
                self.candidates[value].note = "slower, and no time to measure it further"

    def _take(self, value: Value) -> bool:
        """Measures a candidate once more; returns False if the time does not suffice."""
        slowest = max(self._expected_seconds.values(), default=self._first_seconds)
        if self._expected_seconds.get(value, slowest) > self._budget.left:
            return False
        found = self.candidates.setdefault(value, CandidateRates(value=value))
        began = time.monotonic()
        try:
            block = self._measure(value, self._block_seconds)
        except CandidateFailed as error:
            found.note, found.rates = str(error), []
            self._report(f"{value}: {error}")
            return True
        self._expected_seconds[value] = time.monotonic() - began
        found.rates.append(block.rate)
        found.memory_mb = max(filter(None, (found.memory_mb, block.memory_mb)), default=None)
        self._report(f"{value}: {format_rate(block.rate)} (round {len(found.rates)})")
        return True

    def fill(self, finding: TargetFinding) -> None:
        """Completes a finding: the candidates, and the choice among them."""
        finding.candidates = self.in_order()
        if not finding.candidates:
            finding.is_late, finding.reason = True, "the time does not suffice"
            return
        finding.chosen, finding.reason = choose(finding.candidates, self._present)


def choose(candidates: Sequence[CandidateRates], present: Value) -> CandidateChoice:
    """Chooses among measured candidates: the present value, unless another one is clearly faster.

    Candidates are compared with the present value round by round, as the load of the machine changes. Clearly
    faster is one that was measured in three rounds or more, faster by 5 % or more in their median, and by 3 %
    or more in the lower quartile. Of several the first one is chosen that is within 5 % of the fastest.
    """
    now = next((one for one in candidates if one.value == present and one.rates), None)
    if now is None:
        return CandidateChoice(present, "the present value could not be measured")
    others = {one.value: ratios for one in candidates if one is not now and (ratios := one.ratios(now))}
    if not others:
        return CandidateChoice(present, "there is no other candidate that can be measured")
    medians = {value: statistics.median(ratios) for value, ratios in others.items()}
    is_clear = {
        value: len(ratios) >= MIN_ROUNDS
        and medians[value] >= MIN_GAIN
        and quartiles(ratios)[0] >= _MIN_QUARTILE
        for value, ratios in others.items()
    }
    faster = [value for value in others if is_clear[value]]
    if faster:
        best = max(medians[value] for value in faster)
        chosen = next(value for value in faster if medians[value] * MIN_GAIN >= best)
        return CandidateChoice(chosen, f"{medians[chosen]:.2f} times as fast as {present}")
    value = max(medians, key=medians.__getitem__)
    if medians[value] < MIN_GAIN:
        return CandidateChoice(present, f"no other is faster by 5 % or more ({value}: {medians[value]:.2f})")
    if len(others[value]) < MIN_ROUNDS:
        why = f"in fewer than {MIN_ROUNDS} rounds: give more --seconds"
    else:
        why = "in the median, inside the noise: " + ", ".join(f"{one:.2f}" for one in others[value])
    return CandidateChoice(present, f"{value} was {medians[value]:.2f} times as fast {why}")


def format_rate(rate: float) -> str:
    """Returns samples per second with three digits or more: ``1,234 samples/s``."""
    return f"{rate:,.0f} samples/s" if rate >= 100 else f"{rate:.3g} samples/s"
