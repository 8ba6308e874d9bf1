from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from roost.base.errors import ConfigError
from roost.train.checkpointing.checkpointer import Checkpoints
from roost.train.hook import Hook, Phase
from roost.train.hooks import Schedule, Validate
from roost.train.optim.optimizer import Optim
from roost.train.optim.schedulers import Warmup
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.hooks.test_best_checkpoint import Scripted
from tests.train.parts import MLP, Recipe, Still, StopAt, assert_equal, built, loader, outcome, plain


class Rates(Hook):
    """Notes the learning rate that each step is taken with."""

    phase = Phase.REPORT

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.recorded: list[float] = []
        """What a row says of it afterwards, when the scheduler has gone on."""

    def before_step(self, trainer: Trainer) -> None:
        self.rates.append(trainer.stepper.optimizers["main"].lr)

    def on_step(self, trainer: Trainer) -> None:
        self.recorded.append(trainer.stepper.optimizers["main"].rates_of_the_step[0])


def rates(
    make: Any, *, unit: str, monitor: str | None = None, values: Any = (1.0,) * 16, every: str = "4"
) -> list[float]:
    runner = built(Scripted)
    runner.values = values
    optimizer = torch.optim.SGD(runner.parameters(), lr=1.0)
    stepper = Stepper(Optim(optimizer, make(optimizer), unit=unit, monitor=monitor))
    seen = Rates()
    loaders = {"valid": loader(Still(8), 8, shuffle=False)}
    hooks = [Schedule(), Validate(every), seen]
    plain(runner, Still(), hooks, until=len(values), loaders=loaders, stepper=stepper).fit()
    assert seen.recorded == seen.rates
    return seen.rates


def halving(optimizer: Any) -> Any:
    return lr_scheduler.StepLR(optimizer, 1, gamma=0.5)


def test_by_step() -> None:
    assert rates(halving, unit="step", values=(1.0,) * 5) == [1.0, 0.5, 0.25, 0.125, 0.0625]


def test_by_epoch() -> None:
    assert rates(halving, unit="epoch") == [1.0] * 7 + [0.5] * 7 + [0.25] * 2


def test_by_validation() -> None:
    assert rates(halving, unit="validation", values=(1.0,) * 9) == [1.0] * 4 + [0.5] * 4 + [0.25]


def test_by_a_metric() -> None:
    def make(optimizer: Any) -> Any:
        return lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

    values = [5.0, 4.0, 4.0, 3.0, 3.5, 3.5]
    found = rates(make, unit="validation", monitor="valid/score", values=values, every="1")
    assert found == [1.0, 1.0, 1.0, 0.5, 0.5, 0.25]


def warm(optimizer: Any, *, waits: bool) -> Any:
    return Warmup(halving(optimizer), optimizer, 3, waits=waits)


def test_a_warm_up_by_steps_before_a_scheduler_by_steps() -> None:
    found = rates(lambda optimizer: warm(optimizer, waits=True), unit="step", values=(1.0,) * 6)
    assert found == [0.25, 0.5, 0.75, 1.0, 0.5, 0.25]


@pytest.mark.parametrize("unit", ["epoch", "validation"])
def test_a_warm_up_by_steps_beside_a_scheduler_by_another_unit(unit: str) -> None:
    found = rates(lambda optimizer: warm(optimizer, waits=False), unit=unit, values=(1.0,) * 9, every="2")
    halved = [0.5] * 2 if unit == "epoch" else [0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.0625]
    after = [1.0] * (9 - len(halved)) + halved
    assert found == [rate * factor for rate, factor in zip(after, [0.25, 0.5, 0.75, *[1.0] * 6], strict=True)]


@pytest.mark.parametrize(
    ("unit", "step"),
    [("step", 2), ("step", 3), ("epoch", 4), ("epoch", 9), ("validation", 2), ("validation", 9)],
)
def test_a_run_stopped_in_its_warm_up_goes_on_exactly(unit: str, step: int, tmp_path: Path) -> None:
    def make(name: str, *hooks: Hook) -> Trainer:
        trainer = Recipe(unit=unit).make(tmp_path / name, *hooks)
        optim = trainer.stepper.optimizers["main"]
        optim.scheduler = Warmup(optim.scheduler, optim.optimizer, 3, waits=unit == "step")
        return trainer

    whole = make("whole")
    whole.fit()
    assert make("cut", StopAt(step)).fit() == "test"
    cut = make("cut")
    cut.fit()
    assert_equal(outcome(cut, tmp_path / "cut"), outcome(whole, tmp_path / "whole"))


def test_a_metric_that_is_never_reported(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        rates(lr_scheduler.ReduceLROnPlateau, unit="validation", monitor="valid/f1")
    assert refused.value.setting == "optimizers.main.scheduler.monitor"
    assert all(fact in str(refused.value) for fact in ("'valid/f1'", "valid/score"))
    messages.check(refused.value)


def test_each_optimizer_has_its_own_unit() -> None:
    runner = built(Scripted)
    runner.values = (1.0,) * 8
    optimizers = {name: torch.optim.SGD(runner.parameters(), lr=1.0) for name in ("main", "slow", "none")}
    optims: dict[str, Any] = {
        "main": Optim(optimizers["main"], halving(optimizers["main"])),
        "slow": Optim(optimizers["slow"], halving(optimizers["slow"]), unit="epoch"),
        "none": optimizers["none"],
    }
    optimizers["slow"].step()
    plain(runner, Still(), [Schedule()], until=8, stepper=Stepper(optims)).fit()
    assert [o.param_groups[0]["lr"] for o in optimizers.values()] == [0.5**8, 0.5, 1.0]


def test_a_schedule_of_a_shorter_run_is_refused_at_the_start(tmp_path: Path, messages: Messages) -> None:
    """Its length is part of its state, so a new one of the right length does not help."""

    def trainer(until: int, *hooks: Hook) -> Trainer:
        runner = built(MLP)
        optimizer = torch.optim.SGD(runner.parameters(), lr=0.1)
        stepper = Stepper(Optim(optimizer, lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=until)))
        checkpoints = Checkpoints(tmp_path / "checkpoints")
        return plain(
            runner, Still(), [Schedule(), *hooks], until=until, stepper=stepper, checkpoints=checkpoints
        )

    trainer(6, StopAt(3)).fit()
    trainer(6).fit()  # to its end
    longer = trainer(9)
    with pytest.raises(ConfigError, match="fork") as refused:
        longer.fit()
    assert longer.progress.step == 6 and refused.value.setting == "optimizers.main.scheduler"
    messages.check(refused)
