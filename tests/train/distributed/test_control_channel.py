from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from roost.base.errors import RanksApart
from roost.train.distributed.control_channel import ControlChannel, ranks_apart_error
from roost.train.distributed.ranks import Ranks
from tests.messages import Messages
from tests.train.team import RankFailed, team


def test_alone_it_comes_back_at_once() -> None:
    channel = ControlChannel()
    assert channel.exchange([1, 2], "the start").wait() == [[1, 2]]
    assert channel.gather("x", "the start") == ["x"] and channel.broadcast("x", "the start") == "x"
    channel.barrier("the end")


def test_what_is_said_reaches_all() -> None:
    def work(ranks: Ranks) -> object:
        first = ranks.control.exchange([ranks.rank, 5], "the start")
        second = ranks.control.exchange([7 * ranks.rank, 0], "the end")
        return [
            second.wait(),  # in whatever order they are waited for
            first.wait(),
            [one.tolist() for one in ranks.saving.gather(torch.full((ranks.rank,), 3), "a save")],
            ranks.control.broadcast(ranks.rank, "a save", source=2),
        ]

    assert team(3, work) == [[[[0, 0], [7, 0], [14, 0]], [[0, 5], [1, 5], [2, 5]], [[], [3], [3, 3]], 2]] * 3


@pytest.mark.parametrize(
    "other",
    [
        lambda channel: channel.exchange([1], "step 7").wait(),
        lambda channel: channel.gather("y" * 1000, "step 7"),
        lambda channel: channel.broadcast("y", "step 7"),
        lambda channel: channel.barrier("step 7"),
    ],
    ids=["exchange", "gather", "broadcast", "barrier"],
)
def test_ranks_at_different_places_all_know_it(other: Callable[[ControlChannel], object]) -> None:
    """Whatever they wait for there, and however much they would say."""

    def work(ranks: Ranks) -> str:
        with pytest.raises(RanksApart) as raised:
            if ranks.rank == 1:
                ranks.control.gather([1] * 500, "a save")
            else:
                other(ranks.control)
        return raised.value.message

    first, *others = team(3, work)
    assert others == [first] * 2
    assert re.search(r"rank 0\b.*\bstep 7, rank 1\b.*\ba save$", first)


def test_a_long_name_of_a_point_is_cut() -> None:
    def work(ranks: Ranks) -> str:
        with pytest.raises(RanksApart) as raised:
            ranks.control.barrier(f"{ranks.rank}" + 50 * "\N{LATIN SMALL LETTER U WITH DIAERESIS}")
        return raised.value.message

    [first, second] = team(2, work)
    assert first == second and first.endswith(" 1" + 31 * "\N{LATIN SMALL LETTER U WITH DIAERESIS}")


def test_of_each_place_one_rank_is_named(messages: Messages) -> None:
    error = ranks_apart_error(["a", "a", "b", "a", "b"])
    assert re.findall(r"rank (\d)", error.message) == ["0", "2"]
    messages.check(error)


def test_a_rank_that_is_gone_is_an_error_and_no_hang() -> None:
    def work(ranks: Ranks) -> None:
        if ranks.is_main:
            ranks.control.gather(1, "the end")

    with pytest.raises(RankFailed, match="rank 0"):
        team(2, work)
