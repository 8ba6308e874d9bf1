from __future__ import annotations

import time

import pytest

from roost.train.distributed.ranks import ALONE, Ranks
from tests.messages import Messages
from tests.train.team import team


def test_a_single_rank_waits_for_none() -> None:
    assert ALONE.is_main and ALONE.is_first_on_machine and not ALONE.are_several
    ALONE.wait_for_first_on_machine()


def test_the_first_of_a_machine_comes_before_the_others() -> None:
    def work(ranks: Ranks) -> float:
        if ranks.is_first_on_machine:
            time.sleep(0.2)
        here = time.monotonic()
        ranks.wait_for_first_on_machine()
        return here if ranks.is_first_on_machine else time.monotonic()

    first, *others = team(3, work)
    assert all(other >= first for other in others)


def test_a_value_that_not_all_ranks_give_is_said_once(
    capfd: pytest.CaptureFixture[str], messages: Messages
) -> None:
    """A rank that has had no batch lacks none."""

    def work(ranks: Ranks) -> None:
        for _ in range(2):
            ranks.warn_of_partial_values("train/", [{"loss", "a"}, {"loss"}, set()])

    team(3, work)
    said = capfd.readouterr().out
    assert "train/a" in said and "rank 1" in said and said.count("\n") == 1
    messages.check(said)
