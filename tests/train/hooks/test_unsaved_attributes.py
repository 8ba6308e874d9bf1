from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from roost.package.checkpoints import checkpoint
from roost.train.hook import Hook, Phase
from roost.train.hooks import Unsaved
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, Recipe, StopAt


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
