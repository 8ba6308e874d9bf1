from __future__ import annotations

import threading

from roost.train.distributed.agreement import Agreement, WindowDecision
from roost.train.distributed.control_channel import ControlChannel
from roost.train.distributed.ranks import Ranks
from tests.train.team import team


def exchanged(
    agreement: Agreement, *, failed: int = 0, num_batches: int = 1, num_samples: int = 4, options: int = 0
) -> WindowDecision:
    exchange = agreement.send(
        step=1, failed=failed, num_batches=num_batches, num_samples=num_samples, options=options
    )
    return agreement.receive(exchange)


def test_every_rank_gets_the_same_decision() -> None:
    def work(ranks: Ranks) -> list[WindowDecision]:
        agreement, me = Agreement(ranks.control), ranks.rank
        decisions = [exchanged(agreement, num_samples=3 + me)]
        if me == 1:
            agreement.request("save", "hold")
        decisions.append(exchanged(agreement))
        decisions.append(exchanged(agreement))
        if me == 2:
            agreement.request_stop()
        decisions.append(exchanged(agreement, failed=int(me == 1), num_batches=me))
        assert agreement.clock() == decisions[-1].clock_seconds
        return decisions

    found = team(3, work)
    assert found[0] == found[1] == found[2]
    first, second, third, fourth = (decision._replace(clock_seconds=0.0) for decision in found[0])
    nothing = WindowDecision(None, [], 0.0, (0, 0, 0), False, 12, "no", options_differ=False)
    assert first == nothing
    assert second == nothing._replace(requests=["save", "hold"])
    assert third == nothing  # a request is sent once
    assert fourth == nothing._replace(stopping_rank=2, failure_codes=(0, 1, 0), is_empty=True)


def test_windows_of_different_lengths_cannot_be_taken_together() -> None:
    def work(ranks: Ranks) -> bool:
        return exchanged(Agreement(ranks.control), num_batches=2 + ranks.rank).is_empty

    assert team(2, work) == [True, True]


def test_different_optimizer_options_are_found() -> None:
    found = team(2, lambda ranks: exchanged(Agreement(ranks.control), options=ranks.rank).options_differ)
    assert found == [True, True]


def test_a_request_that_was_not_received_is_sent_again() -> None:
    """A window that is dropped (a rollback) takes its message with it."""
    agreement = Agreement(ControlChannel())
    threading.Thread(target=agreement.request, args=["validate"]).start()
    while not agreement._requested:
        continue
    agreement.send(step=1, failed=0, num_batches=1, num_samples=1)
    assert exchanged(agreement).requests == ["validate"]
    assert exchanged(agreement).requests == []
