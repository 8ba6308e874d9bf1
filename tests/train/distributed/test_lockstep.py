from __future__ import annotations

import re
from typing import Any

import pytest

from roost.base.errors import ContractError, PeerLost, RanksApart
from roost.train.data.batches import Interrupted
from roost.train.distributed.lockstep import CONTINUING, ENDING, STOPPING, Lockstep
from roost.train.distributed.ranks import ALONE, Ranks
from tests.messages import Messages
from tests.train.team import team


def outcome(ranks: Ranks, work: Any) -> str:
    """What a work in lockstep came to, and whether the ranks still understand each other afterwards."""
    try:
        with Lockstep(ranks, "the work") as lockstep:
            work(ranks.rank, lockstep)
        said = "done"
    except (Interrupted, PeerLost, ContractError, KeyError) as error:
        said = f"{type(error).__name__}: {error}"
    assert ranks.control.gather(ranks.rank, "the end") == list(range(ranks.world_size))
    return said


def numbers(rank: int, lockstep: Lockstep) -> None:
    assert list(lockstep.meet(CONTINUING, 10 + rank)) == [10, 11, 12]
    lockstep.meet(ENDING)


def fails(rank: int, lockstep: Lockstep) -> None:
    lockstep.meet(CONTINUING)
    if rank == 1:
        raise KeyError("mine")
    lockstep.meet(ENDING)


def stops(rank: int, lockstep: Lockstep) -> None:
    lockstep.meet(STOPPING if rank == 2 else CONTINUING)


def waits_for_data(rank: int, lockstep: Lockstep) -> None:
    if rank == 0:
        raise Interrupted
    lockstep.meet(CONTINUING)


def has_more(rank: int, lockstep: Lockstep) -> None:
    lockstep.meet(CONTINUING if rank else ENDING)


def fails_after_the_end(rank: int, lockstep: Lockstep) -> None:
    lockstep.meet(ENDING)
    if rank == 1:
        raise KeyError("late")


def test_all_leave_it_together_and_can_go_on(messages: Messages) -> None:
    """Whatever happens to one, the next collective is the same one for all."""
    works = (numbers, fails, stops, waits_for_data, has_more, fails_after_the_end)
    first, second, third = team(3, lambda ranks: [outcome(ranks, work) for work in works])
    lost, unlike = first[1], first[4]
    assert lost.startswith("PeerLost: ") and "rank 1" in lost and "the work" in lost
    assert re.search(r"^ContractError: .*the work.*rank 0\b.*rank 1\b", unlike)
    messages.check(lost)
    messages.check(unlike)
    assert first[:4] == ["done", lost, "Interrupted: ", "Interrupted: "] == third[:4]
    assert second[:4] == ["done", "KeyError: 'mine'", "Interrupted: ", "Interrupted: "]
    assert first[4] == second[4] == third[4]
    assert [one[5] for one in (first, second, third)] == ["done", "KeyError: 'late'", "done"]


def test_a_rank_that_does_something_else_is_detected() -> None:
    """No rank takes its message for a state."""

    def work(ranks: Ranks) -> str:
        with pytest.raises(RanksApart) as raised, Lockstep(ranks, "the work") as lockstep:
            if ranks.rank == 1:
                ranks.control.exchange([7, 5], "step 3").wait()
            lockstep.meet(CONTINUING)
        return raised.value.message

    first, second = team(2, work)
    assert first == second and re.search(r"rank 0\b.*\bthe work, rank 1\b.*\bstep 3$", first)


def test_alone_nothing_is_waited_for() -> None:
    with pytest.raises(Interrupted), Lockstep(ALONE, "it") as lockstep:
        assert lockstep.meet(CONTINUING, 3) == (3,)
        lockstep.meet(STOPPING)
    with pytest.raises(KeyError), Lockstep(ALONE, "it"):
        raise KeyError
