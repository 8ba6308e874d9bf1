from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import roost
from roost.package.checkpoints import checkpoint
from roost.train.checkpointing.checkpointer import Checkpoints
from roost.train.hook import Hook, Phase
from roost.train.hooks import Save, Unsaved
from roost.train.hooks.unsaved_attributes import PlainAttributes
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, Gan, Points, Recipe, StopAt, built, loader


class Counts(MLP):
    """Keeps a number that no checkpoint holds."""

    def build(self) -> None:
        super().build()
        self.counter = 0

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        self.counter += 1
        return super().loss(batch)


def test_an_attribute_that_changes_is_named_at_the_first_save(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    recipe = Recipe(runner=Counts, hooks=[Unsaved])
    recipe.make(tmp_path, StopAt(5)).fit()
    trainer = recipe.make(tmp_path)
    trainer.fit()
    (reason,) = trainer.inexact
    assert reason.startswith("self.counter ")
    messages.check(reason)
    assert all(info.inexact == [reason] for info in checkpoint.read_manifests(tmp_path / "Checkpoints"))
    assert capsys.readouterr().out.count("inexact: ") == 2, "once a session"


class KeepsFakes(Gan):
    """Passes what the generator made on within a step, and perhaps to the next step."""

    carries: ClassVar[bool] = False

    def d_loss(self, batch: Any) -> Any:
        self.fake = self.g(torch.ones(4, 3))
        if self.carries:
            self.last = self.fake.detach()
        return super().d_loss(batch)


def test_what_each_step_computes_again_is_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for carries, named in ((False, []), (True, ["self.last"])):
        monkeypatch.setattr(KeepsFakes, "carries", carries)
        runner = built(KeepsFakes)
        optimizers = {name: torch.optim.SGD(getattr(runner, name).parameters(), lr=0.1) for name in "gd"}
        hooks, checkpoints = [Unsaved(), Save("2")], Checkpoints(tmp_path / str(carries))
        trainer = Trainer(
            runner,
            {"train": loader(Points(), 4)},
            Stepper(optimizers),
            hooks=hooks,
            checkpoints=checkpoints,
            until=4,
        )
        trainer.fit()
        assert isinstance(trainer.runner.fake, Tensor)
        assert [reason.split()[0] for reason in trainer.inexact] == named


def test_a_runner_that_keeps_nothing_is_exact(tmp_path: Path) -> None:
    trainer = Recipe(hooks=[Unsaved]).make(tmp_path)
    trainer.fit()
    assert trainer.inexact == []


def test_what_a_hook_s_start_puts_into_the_runner_is_no_change(tmp_path: Path) -> None:
    class Puts(Hook):
        phase = Phase.MODEL

        def on_start(self, trainer: Trainer) -> None:
            trainer.runner.factor = 0.5

    trainer = Recipe(hooks=[Unsaved, Puts]).make(tmp_path)
    trainer.fit()
    assert trainer.inexact == []


def test_an_optimizer_that_gets_a_group_is_named(tmp_path: Path, messages: Messages) -> None:
    class Adds(Hook):
        def on_step(self, trainer: Trainer) -> None:
            if trainer.progress.step == 2:
                group = {"params": [nn.Parameter(torch.zeros(1))]}
                trainer.stepper.optimizers["main"].optimizer.add_param_group(group)

    trainer = Recipe(hooks=[Unsaved, Adds]).make(tmp_path)
    trainer.fit()
    (reason,) = trainer.inexact
    assert "optimizer main" in reason
    messages.check(reason)


def test_a_parameter_that_is_replaced_is_named(tmp_path: Path, messages: Messages) -> None:
    class Replaces(Hook):
        def on_step(self, trainer: Trainer) -> None:
            if trainer.progress.step == 2:
                net = trainer.runner.net
                net[0].weight = nn.Parameter(net[0].weight.detach().clone())

    trainer = Recipe(hooks=[Unsaved, Replaces]).make(tmp_path)
    trainer.fit()
    (reason,) = trainer.inexact
    assert "optimizer main" in reason
    messages.check(reason)


class Part(nn.Module):
    """A part of a runner that keeps a number."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0


class Runner(roost.Runner):
    """Attributes of many kinds."""

    def build(self) -> None:
        self.net = nn.LSTM(2, 2)
        self.part = Part()
        self.counter = 0
        self.history: list[float] = []
        self.table = {"a": torch.zeros(3), "b": np.zeros(2)}
        self.function = print
        self.thing: Any = object()
        self.weights = list(self.net.parameters())
        self.named = {"data": self.net.weight_ih_l0.data}
        self.register_buffer("known", torch.zeros(2))


@pytest.fixture
def runner() -> Runner:
    runner = Runner({"a": 1}, {"b": [1]})
    runner.build()
    return runner


def change(runner: Runner, name: str) -> None:
    """Changes one thing in place."""
    match name:
        case "counter":
            runner.counter += 1
        case "history":
            runner.history.append(0.5)
        case "table":
            runner.table["a"][1] = 1.0
        case "part.seen":
            runner.part.seen = True
        case "info":
            runner.info["b"].append(2)
        case "new":
            runner.new = [1]
        case "counter gone":
            del runner.counter


@pytest.mark.parametrize("name", ["counter", "history", "table", "part.seen", "info", "new", "counter gone"])
def test_what_changes_is_named(runner: Runner, name: str) -> None:
    plain = PlainAttributes(runner)
    change(runner, name)
    assert plain.changed() == [name.removesuffix(" gone")]
    change(runner, "history")
    assert plain.changed() == [], "it looks once"


def test_what_is_saved_elsewhere_or_cannot_be_judged_is_not_named(runner: Runner) -> None:
    plain = PlainAttributes(runner)
    with torch.no_grad():
        for parameter in runner.parameters():
            parameter.add_(1.0)
    runner.known.add_(1.0)
    runner.function = len
    runner.thing = object()
    runner.other = object()
    runner.eval()
    runner.net.flatten_parameters()
    assert plain.changed() == []


def test_a_part_that_saves_extra_state_is_trusted() -> None:
    class Saves(Part):
        def get_extra_state(self) -> Any:
            return self.seen

        def set_extra_state(self, state: Any) -> None:
            self.seen = state

    module = nn.Sequential(Saves())
    plain = PlainAttributes(module)
    module[0].seen = 3
    assert plain.changed() == []


def test_the_same_values_in_other_objects_are_no_change(runner: Runner) -> None:
    plain = PlainAttributes(runner)
    runner.table = {name: value + 0 for name, value in runner.table.items()}
    runner.history = []
    assert plain.changed() == []
