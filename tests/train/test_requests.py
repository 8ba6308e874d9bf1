from __future__ import annotations

import threading

import pytest

from roost.base.errors import ContractError
from roost.train.distributed.ranks import Ranks
from roost.train.hook import Hook, Phase
from roost.train.hooks import Save
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, Points, StopAt, built, plain
from tests.train.team import team


class AskAt(Hook):
    """Asks at a step, on one rank, from a thread of its own or from the hook itself."""

    phase = Phase.MODEL

    def __init__(self, step: int, rank: int, *what: str, thread: bool = True) -> None:
        self._step, self._rank, self._what, self._thread = step, rank, what, thread

    def on_step(self, trainer: Trainer) -> None:
        if trainer.progress.step != self._step or trainer.ranks.rank != self._rank:
            return
        for what in self._what:
            ask = {"save": trainer.request_save, "stop": lambda: trainer.request_stop("on request")}[what]
            one = threading.Thread(target=ask)
            one.start()
            one.join()


class SavedAt(Save):
    """Notes the steps at which it was asked to save, and saves nothing."""

    def __init__(self) -> None:
        super().__init__("1000")
        self.steps: list[int] = []

    def on_step(self, trainer: Trainer) -> None:
        self.steps.append(trainer.progress.step)


def fitted(ranks: Ranks, ask: Hook) -> tuple[str, int, list[int]]:
    saves = SavedAt()
    trainer = plain(built(MLP), Points(), [ask, saves], until=12, ranks=ranks)
    return trainer.fit(), trainer.progress.step, saves.steps


def test_alone_it_holds_at_once() -> None:
    assert fitted(Ranks(), AskAt(4, 0, "save")) == ("finished", 12, [4, 12])
    assert fitted(Ranks(), AskAt(4, 0, "stop")) == ("on request", 4, [])


def test_what_one_rank_is_asked_from_outside_all_do_at_one_step() -> None:
    found = team(3, lambda ranks: fitted(ranks, AskAt(4, 1, "save")))
    assert found == [("finished", 12, [6, 12])] * 3


def test_a_stop_of_one_rank_stops_all_at_one_step(messages: Messages) -> None:
    found = team(3, lambda ranks: fitted(ranks, AskAt(4, 2, "stop")))
    said = found[0][0]
    assert "rank 2" in said
    messages.check(said)
    assert found == [(said, 5, []), (said, 5, []), ("on request", 5, [])]


def test_a_hook_of_every_rank_stops_all() -> None:
    found = team(2, lambda ranks: fitted(ranks, StopAt(4)))
    assert found[0] == found[1] and found[0][1:] == (5, [])


def test_a_request_that_no_hook_serves_is_refused() -> None:
    with pytest.raises(ContractError, match="'save'"):
        plain(built(MLP), Points()).request_save()
