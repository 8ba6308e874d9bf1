"""The rounds of measurements, with rates that are given instead of measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roost.package.results.tuning_report import CandidateRates, TargetFinding
from roost.worker.tuning.budget import Budget
from roost.worker.tuning.candidate_rounds import (
    CandidateFailed,
    CandidateRounds,
    MeasuredBlock,
    Value,
    choose,
)
from tests.messages import Messages


def rates(value: Value, *found: float) -> CandidateRates:
    return CandidateRates(value=value, rates=list(found))


def rounds(
    rate: Callable[[Value], float], present: Value, *, seconds: float = 1e6
) -> tuple[CandidateRounds, list[Value]]:
    """Rounds with their measurements in order."""
    taken: list[Value] = []

    def measure(value: Value, block_seconds: float) -> MeasuredBlock:
        taken.append(value)
        return MeasuredBlock(rate(value))

    return CandidateRounds(measure, present, budget=Budget(seconds), num_candidates=4), taken


def filled(measured: CandidateRounds) -> TargetFinding:
    finding = TargetFinding(target="workers", setting="data.num_workers", present=1, chosen=1, reason="")
    measured.fill(finding)
    return finding


def test_the_fastest_is_chosen_and_of_equals_the_first(messages: Messages) -> None:
    measured, _ = rounds(lambda value: {1: 10.0, 2: 20.0, 4: 39.0, 8: 40.0}[int(value)], 1)
    measured.ascend([2, 4, 8])
    measured.repeat()
    finding = filled(measured)
    assert finding.chosen == 4, "8 workers are faster by less than 5 %"
    messages.check(finding.reason)


def test_rounds_are_taken_in_turn() -> None:
    measured, taken = rounds(lambda value: 10.0, 1)
    measured.ascend([2, 4])
    assert taken == [1, 2, 4]
    measured.repeat()
    assert taken == [1, 2, 4] * 5 and filled(measured).chosen == 1


def test_the_ascent_ends_after_two_that_gain_nothing() -> None:
    measured, taken = rounds(lambda value: min(int(value), 4), 1)
    measured.ascend([0, 2, 4, 8, 16, 32])
    assert taken == [1, 0, 2, 4, 8, 16]
    measured, taken = rounds(lambda value: 1.0, 3)
    measured.ascend([0, 1, 2, 4, 8, 16])
    assert taken == [3, 0, 1, 2, 4, 8], "those below the present value are all measured"


def test_a_candidate_that_fails_ends_the_ascent() -> None:
    def rate(value: Value) -> float:
        if value == 4:
            raise CandidateFailed("out of memory")
        return float(value)

    measured, taken = rounds(rate, 1)
    measured.ascend([2, 4, 8])
    measured.repeat()
    finding = filled(measured)
    assert 8 not in taken and taken.count(4) == 1 and finding.chosen == 2
    assert [one.note for one in finding.candidates] == ["", "", "out of memory"]


def test_a_clearly_slower_candidate_is_measured_no_further(messages: Messages) -> None:
    measured, taken = rounds(lambda value: {1: 9.0, 2: 4.0, 4: 10.0}[int(value)], 1)
    measured.ascend([2, 4])
    measured.repeat()
    assert taken.count(2) == 1, "below half of the fastest"
    assert taken.count(1) == taken.count(4) == 5
    messages.check(measured.candidates[2].note)


def test_the_present_value_is_never_dropped_and_a_clear_result_ends_the_rounds() -> None:
    measured, taken = rounds(lambda value: {1: 1.0, 4: 10.0}[int(value)], 1)
    measured.ascend([4])
    measured.repeat()
    assert taken == [1, 4] * 3 and filled(measured).chosen == 4


def test_a_disturbed_first_round_drops_nothing_that_may_be_fast() -> None:
    number = iter(range(100))

    def rate(value: Value) -> float:
        return 12.0 if value == 2 and next(number) == 0 else {1: 10.0, 2: 20.0}[int(value)]

    measured, _ = rounds(rate, 1)
    measured.ascend([2])
    measured.repeat()
    assert filled(measured).chosen == 2


def test_without_time_nothing_is_measured() -> None:
    measured, taken = rounds(lambda value: 1.0, 1, seconds=0.0)
    measured.ascend([2])
    measured.repeat()
    finding = filled(measured)
    assert taken == [] and finding.is_late and finding.chosen == 1 and "time" in finding.reason


def test_numbers_come_ascending_in_the_finding() -> None:
    measured, _ = rounds(lambda value: 1.0, 2)
    measured.ascend([0, 1, 4])
    assert [one.value for one in filled(measured).candidates] == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        ([rates(1, 10, 11, 12), rates(2, 10.2, 11.4, 12)], 1),  # faster by less than 5 %
        ([rates(1, 8, 10, 13), rates(2, 9, 9, 14)], 1),  # not in each round
        ([rates(1, 10, 10, 10), rates(2, 20, 20)], 1),  # two rounds only
        ([rates(1, 10, 10, 10), rates(2, 12, 12, 12)], 2),
        ([rates(1, 10, 10, 10, 10, 10), rates(2, 5, 12, 12, 12, 12)], 2),  # one disturbed round of five
        ([rates(1, 10, 10, 10), rates(2)], 1),  # it failed
        ([rates(1), rates(2, 12, 12, 12)], 1),
    ],
)
def test_the_choice(candidates: list[CandidateRates], chosen: int, messages: Messages) -> None:
    found = choose(candidates, 1)
    assert found.value == chosen
    messages.check(found.reason)


def test_the_shares_of_a_budget() -> None:
    budget = Budget(100.0)
    assert 24 < budget.share(0.25).seconds <= 25 and Budget(0.0).left == 0
