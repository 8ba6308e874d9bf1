from __future__ import annotations

import pytest
import torch

from roost.train.data.loader import Loader
from roost.train.trainer import Trainer
from roost.worker.check.short_run import first_and_last_windows
from roost.worker.check.speed_measurement import (
    StepClock,
    evaluation_seconds,
    step_seconds,
    step_seconds_on_one_thread,
)
from tests.train.parts import MLP, Still, built, loader, plain


def trainer_of() -> tuple[Trainer, dict[str, Loader]]:
    whole = {name: loader(Still()) for name in ("train", "valid/a", "valid/b")}
    loaders = {name: one.excerpt(first_and_last_windows(len(one))) for name, one in whole.items()}
    return plain(built(MLP), Still(), loaders=loaders), whole


def test_steps_and_evaluations_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    trainer, whole = trainer_of()
    trainer.fit()
    assert step_seconds(trainer, whole["train"]) > 0
    both = evaluation_seconds(trainer, whole, "valid")
    assert both > 0 and evaluation_seconds(trainer, whole, "test") == 0
    assert capsys.readouterr().out == ""


def test_one_thread_is_measured_where_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, whole = trainer_of()
    trainer.fit()
    assert step_seconds_on_one_thread(trainer, whole["train"]) is None, "there is one"
    used = []
    trainer.stepper.before_optimizer_step = lambda: used.append(torch.get_num_threads())
    torch.set_num_threads(2)
    try:
        assert step_seconds_on_one_thread(trainer, whole["train"])
        assert set(used) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_the_first_of_several_steps_does_not_count() -> None:
    clock = StepClock()
    clock._at = [0.0, 5.0, 6.0, 7.0]
    assert clock.step_seconds == 1.0
    clock._at = [0.0, 5.0]
    assert clock.step_seconds == 5.0
