from __future__ import annotations

import threading

from roost.train.distributed.agreement import Agreement, WindowDecision
from roost.train.distributed.control_channel import ControlChannel
from roost.train.distributed.ranks import Ranks
from tests.train.team import team


def said(
    agreement: Agreement, *, failed: int = 0, num_batches: int = 1, num_samples: int = 4, options: int = 0
) -> WindowDecision:
    told = agreement.tell(
        step=1, failed=failed, num_batches=num_batches, num_samples=num_samples, options=options
    )
    return agreement.hear(told)


def test_every_rank_hears_the_same() -> None:
    def work(ranks: Ranks) -> list[WindowDecision]:
        agreement, me = Agreement(ranks.control), ranks.rank
        heard = [said(agreement, num_samples=3 + me)]
        if me == 1:
            agreement.ask("save", "hold")
        heard.append(said(agreement))
        heard.append(said(agreement))
        if me == 2:
            agreement.ask_to_stop()
        heard.append(said(agreement, failed=int(me == 1), num_batches=me))
        assert agreement.clock() == heard[-1].seconds
        return heard

    found = team(3, work)
    assert found[0] == found[1] == found[2]
    first, second, third, fourth = (verdict._replace(seconds=0.0) for verdict in found[0])
    nothing = WindowDecision(None, [], 0.0, (0, 0, 0), False, 12, "no", options_differ=False)
    assert first == nothing
    assert second == nothing._replace(requests=["save", "hold"])
    assert third == nothing  # it is asked for once
    assert fourth == nothing._replace(stops=2, failed=(0, 1, 0), is_empty=True)


def test_windows_of_other_lengths_cannot_be_taken_together() -> None:
    def work(ranks: Ranks) -> bool:
        return said(Agreement(ranks.control), num_batches=2 + ranks.rank).is_empty

    assert team(2, work) == [True, True]


def test_options_of_optimizers_that_differ_are_seen() -> None:
    found = team(2, lambda ranks: said(Agreement(ranks.control), options=ranks.rank).options_differ)
    assert found == [True, True]


def test_what_was_asked_and_not_heard_is_told_again() -> None:
    """A window that is dropped (a rollback) takes its message with it."""
    agreement = Agreement(ControlChannel())
    threading.Thread(target=agreement.ask, args=["validate"]).start()
    while not agreement._asked:
        continue
    agreement.tell(step=1, failed=0, num_batches=1, num_samples=1)
    assert said(agreement).requests == ["validate"]
    assert said(agreement).requests == []
