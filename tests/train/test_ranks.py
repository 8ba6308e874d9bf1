from __future__ import annotations

import time

import pytest

from roost.train.ranks import ALONE, Channel, Ranks
from tests.train.team import RankFailed, team


def test_alone_nobody_is_waited_for() -> None:
    assert ALONE.is_main and ALONE.is_first_here and not ALONE.are_several
    channel = Channel()
    assert channel.exchange([1, 2]).wait() == [[1, 2]]
    assert channel.gather("x") == ["x"] and channel.broadcast("x") == "x"
    channel.barrier()
    ALONE.after_first_here()


def test_what_is_said_reaches_all() -> None:
    def work(ranks: Ranks) -> object:
        first = ranks.control.exchange([ranks.rank, 5])
        second = ranks.control.exchange([7 * ranks.rank, 0])
        return [
            second.wait(),  # in whatever order they are waited for
            first.wait(),
            ranks.saving.gather({"rank": ranks.rank}),
            ranks.control.broadcast(ranks.rank, source=2),
        ]

    assert (
        team(3, work)
        == [[[[0, 0], [7, 0], [14, 0]], [[0, 5], [1, 5], [2, 5]], [{"rank": 0}, {"rank": 1}, {"rank": 2}], 2]]
        * 3
    )


def test_the_first_of_a_machine_comes_before_the_others() -> None:
    def work(ranks: Ranks) -> float:
        if ranks.is_first_here:
            time.sleep(0.2)
        here = time.monotonic()
        ranks.after_first_here()
        return here if ranks.is_first_here else time.monotonic()

    first, *others = team(3, work)
    assert all(other >= first for other in others)


def test_a_rank_that_is_gone_is_an_error_and_no_hang() -> None:
    def work(ranks: Ranks) -> None:
        if ranks.is_main:
            ranks.control.gather(1)

    with pytest.raises(RankFailed, match="rank 0"):
        team(2, work)
