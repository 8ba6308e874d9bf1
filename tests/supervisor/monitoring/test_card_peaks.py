"""What a supervisor reads of the memory that its workers tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roost.supervisor.monitoring.card_peaks import largest_peak


def line(peak: object, reason: str = "finished", **more: Any) -> bytes:
    return json.dumps({"reason": reason, "memory": {"peak_mb": peak, **more}}).encode() + b"\n"


def test_the_rank_that_took_most_counts() -> None:
    found = largest_peak([b"noise\n" + line(10.0), line(30.5, driver_mb=4, ooms=0), line(20)])
    assert found == {
        "peak_mb": 30.5,
        "allocated_mb": None,
        "driver_mb": 4.0,
        "others_mb": None,
        "asked_mb": None,
        "ooms": 0.0,
    }


def test_before_it_the_one_that_ran_out() -> None:
    found = largest_peak([line(30) + line(20, "oom_gpu", asked_mb=7.5)])
    assert found is not None and (found["peak_mb"], found["asked_mb"]) == (20, 7.5)


@pytest.mark.parametrize("peak", [None, "1", True, -1, float("nan"), 1e12, [1]])
def test_what_the_code_of_a_project_writes_into_the_pipe_is_no_memory(peak: object) -> None:
    assert largest_peak([line(peak), b'{"memory": 3}\n', b"[1]\n", b"{}\n", b"[" * 5000]) is None
