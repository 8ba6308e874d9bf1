"""The limit of card memory follows what the libraries of the GPU take once they are loaded."""

from __future__ import annotations

import os
from typing import Any

import pytest

from roost.devices import visible_cards
from roost.devices.card import Card, CardProcess
from roost.worker.card_limit import CardLimit
from tests.train.fake_cuda import FakeCuda
from tests.train.parts import MLP, Still, built, plain


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda(1)
    fake.put_in_place(monkeypatch)
    monkeypatch.delenv("ROOST_DEVICES", raising=False)
    return fake


def test_it_is_measured_again_at_the_first_row_and_validation(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def cards() -> list[Card]:
        nonlocal asked
        asked += 1
        return [
            Card(0, "GPU-0", "test", 10_240, 9_000, (CardProcess(os.getpid(), "ada", 500 + 100 * asked),))
        ]

    monkeypatch.setattr(visible_cards, "cards", cards)
    hook = CardLimit(5_000, "cuda:0", is_rank=False)
    trainer: Any = plain(built(MLP), Still(), [hook], until=4)
    fractions = []
    for step in range(3):
        hook.on_step(trainer)
        fractions.append((step, dict(cuda.fractions)))
        hook.on_eval(trainer, {})
    assert asked == 2, "once each: the driver takes its time to answer"
    assert fractions[0] == (0, {0: 0.44}), "600 MB of 5,000 are the driver's"
    assert fractions[2] == (2, {0: 0.43})


def test_each_row_calls_it() -> None:
    """In the trainer: the hook has no interval of its own."""
    rows = []

    class Counted(CardLimit):
        def _limit(self) -> None:
            rows.append(1)

    trainer = plain(built(MLP), Still(), [Counted(5_000, "cpu", is_rank=False)], until=4)
    trainer.agenda.request("report")
    trainer.fit()
    assert rows == [1]
