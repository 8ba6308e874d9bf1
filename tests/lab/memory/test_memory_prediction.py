"""How much memory a task is given."""

from __future__ import annotations

from typing import Any

import pytest

from roost.devices.resource_request import ResourceRequest
from roost.lab.memory.memory_prediction import (
    OutOfMemory,
    percentile,
    predict_memory,
    request_after_out_of_memory,
)
from roost.lab.memory.run_comparison import SimilarRuns
from roost.lab.queue.history import MemoryPeak
from tests.messages import Messages


def peaks(*found: tuple[float | None, float]) -> list[MemoryPeak]:
    """One row for each scale and peak; the driver takes 400 MB."""
    return [MemoryPeak("key", scale, mb, 400.0, 1, "H100", at) for at, (scale, mb) in enumerate(found)]


def given(
    rows: list[MemoryPeak], *, scale: float | None = 32.0, declared_mb: int | None = None, **other: Any
) -> int | None:
    return predict_memory(SimilarRuns(rows, **other), scale=scale, declared_mb=declared_mb).mb


def test_nothing_known_is_a_whole_card_or_what_was_asked(messages: Messages) -> None:
    assert given([]) is None and given([], declared_mb=9000) == 9000
    messages.check(predict_memory(SimilarRuns(), scale=None).reason)


def test_the_margin_shrinks_with_each_run(messages: Messages) -> None:
    same = (32.0, 10_000.0)
    assert [given(peaks(*[same] * count)) for count in (1, 2, 3, 9)] == [11_900, 11_400, 10_900, 10_900]
    assert given(peaks(same), declared_mb=20_000) == 11_900  # measured goes before guessed
    why = predict_memory(SimilarRuns(peaks(same, same)), scale=32.0).reason
    assert "2" in why
    messages.check(why)


def test_the_margin_grows_where_the_runs_differ(messages: Messages) -> None:
    same = (32.0, 10_000.0)
    assert [given(peaks(*[same] * 3), widening=widening) for widening in (1.0, 1.1)] == [10_900, 11_950]
    two = peaks((16.0, 3_000.0), (64.0, 9_000.0))
    assert given(two, scale=32.0, widening=1.1) == 6_450
    for rows in (peaks(same), two):
        found = SimilarRuns(rows, 1.1, "of its sweep")
        messages.check(predict_memory(found, scale=32.0).reason)


def test_only_the_newest_runs_count() -> None:
    old = [(32.0, 11_000.0)] * 5 + [(32.0, 10_000.0)] * 8
    assert given(peaks(*old)) == 10_900
    assert given(peaks((None, 10_000.0)), scale=None) == 11_900


def test_runs_that_differ_much_say_nothing() -> None:
    assert given(peaks((32.0, 5_000.0), (32.0, 10_000.0))) is None
    assert given(peaks((32.0, 5_000.0), (32.0, 10_000.0)), declared_mb=12_000) == 12_000


def test_other_scales_are_a_line() -> None:
    two = peaks((16.0, 3_000.0), (64.0, 9_000.0))
    assert given(two, scale=32.0) == 5_900  # (1000 + 125 * 32) * 1.10 + 400
    assert given(two, scale=128.0) == 19_100
    assert given(two, scale=129.0) is None  # too far to be believed
    assert given(two, scale=1.0) == 2_050  # half of what the smallest took
    assert given(two, scale=None) is None
    assert given(two[:1], scale=32.0) is None
    assert given(peaks((16.0, 9_000.0), (64.0, 3_000.0))) is None
    assert given(peaks((1.0, 100.0), (2.0, 9_000.0), (3.0, 300.0)), scale=4.0) is None


def test_percentile() -> None:
    assert [percentile([1.0, 2.0, 3.0, 4.0], share) for share in (0.0, 0.5, 0.75, 0.95)] == [1, 2, 3, 4]


def again(
    reserved: int | None, peak: float, *, count: int = 0, largest: int = 24_000, **other: Any
) -> ResourceRequest | None:
    failed = OutOfMemory(reserved, 24_000, largest, peak, **other)
    return request_after_out_of_memory(failed, ResourceRequest(cards=1, ran_out=count))


def request(mb: int | None, whole: bool, count: int) -> ResourceRequest:
    return ResourceRequest(cards=1, least_mb=mb, whole=whole, ran_out=count)


def test_out_of_memory_gives_more_then_the_whole_then_a_larger_card() -> None:
    assert again(8_000, 7_900.0) == request(12_000, False, 1)
    assert again(8_000, 11_000.0) == request(13_200, False, 1)
    assert again(12_000, 11_900.0, count=1) == request(12_000, True, 2)
    assert again(20_000, 19_900.0) == request(20_000, True, 1)
    assert again(None, 23_000.0, count=2, largest=80_000) == request(24_001, True, 3)
    assert again(None, 23_000.0, count=2) is None
    assert again(None, 23_000.0, count=3, largest=80_000) is None


def test_the_allocation_that_failed_counts() -> None:
    """It needed at least what it had and that."""
    assert again(3_000, 400.0, asked_mb=9_000.0) == request(10_340, False, 1)
    assert again(3_000, 400.0, asked_mb=22_000.0) == request(3_000, True, 1), "nearly all of the card"
    assert again(3_000, 400.0, asked_mb=30_000.0, largest=80_000) == request(30_400, True, 1), "at once"
    assert again(None, 20_000.0, asked_mb=30_000.0, largest=80_000) == request(50_000, True, 1)
    assert again(None, 20_000.0, asked_mb=90_000.0, largest=80_000) == request(80_000, True, 1)
    assert again(3_000, 400.0, asked_mb=30_000.0) == request(3_000, True, 1), "the only one there is"


@pytest.mark.parametrize(
    ("asked", "alone", "charged"), [(100.0, False, False), (100.0, True, True), (5_000.0, False, True)]
)
def test_a_neighbours_fault_is_not_charged(asked: float, alone: bool, charged: bool) -> None:
    found = again(8_000, 4_000.0, count=3, asked_mb=asked, alone=alone)
    assert found == (None if charged else request(8_000, False, 3))


def test_who_has_the_whole_card_is_not_charged_for_what_somebody_else_has_taken_of_it() -> None:
    assert again(None, 4_000.0, count=3, asked_mb=100.0, alone=False) == request(None, False, 3)
    assert again(None, 23_500.0, asked_mb=1_000.0, alone=False) is None


def test_the_least_memory_never_shrinks_and_a_whole_card_stays_one() -> None:
    failed = OutOfMemory(8_000, 24_000, 24_000, 4_000.0, 100.0, alone=False)
    need = ResourceRequest(cards=2, least_mb=9_000, whole=True, time_limit=5.0)
    assert request_after_out_of_memory(failed, need) == need
