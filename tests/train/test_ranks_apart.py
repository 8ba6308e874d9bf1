"""Ranks that act differently, because something decides by what only one of them knows: it is reported, with
its cause and soon."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from roost.base.errors import RanksApart
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.plans.rank_shards import ShardedPlan
from roost.train.distributed.ranks import Ranks
from roost.train.hook import Hook, Phase
from roost.train.hooks import Save, Visualize
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, Still, built
from tests.train.team import silent, team

STEP = 3


class Alone(Hook):
    """One rank does something after a step that the others do not."""

    phase, every = Phase.SCHEDULE, "1"

    def __init__(self, rank: int, action: Callable[[Trainer], object]) -> None:
        self._rank, self._action = rank, action

    def on_step(self, trainer: Trainer) -> None:
        if (trainer.ranks.rank, trainer.progress.step) == (self._rank, STEP):
            self._action(trainer)


class Looks(Hook):
    """At the row and at the validation set, after each step."""

    phase, every = Phase.RECORD, "1"

    def on_step(self, trainer: Trainer) -> None:
        trainer.events.peek()
        trainer.evaluate("valid")


class Partial(MLP):
    """Rank 1 gives a value less, in training and in evaluation."""

    ranks: Ranks

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        return self._without(super().loss(batch))

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        return self._without(super().evaluate(batch))

    def _without(self, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {name: one for name, one in values.items() if name == "loss" or self.ranks.is_main}

    def visualize(self, batch: Any) -> None:
        return None


def trainer(ranks: Ranks, folder: Path, *hooks: Hook, until: int = 6) -> Trainer:
    runner = built(Partial)
    runner.ranks = ranks
    plans = {"train": BatchPlan(26, 4), "valid": BatchPlan(26, 4, shuffle=False, drop_last=False)}
    shared = ShardedPlan(plans["train"], ranks.rank, ranks.world_size)
    return Trainer(
        runner,
        {"train": Loader(Still(), plan=shared), "valid": Loader(Still(), plan=plans["valid"], name="valid")},
        Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), ranks=ranks),
        hooks=[*hooks, Save("1000"), Visualize(folder / "media")],
        checkpoints=Checkpoints(folder / "Checkpoints", ranks=ranks),
        until=until,
        ranks=ranks,
    )


def ended(ranks: Ranks, folder: Path, *hooks: Hook) -> str:
    """What the training of one rank ends by."""
    try:
        with silent():
            return trainer(ranks, folder, *hooks).fit()
    except Exception as error:  # noqa: BLE001  - what each rank ends by
        return f"{type(error).__name__}: {error}"


ACTIONS: Mapping[str, Callable[[Trainer], object]] = {
    "save": lambda trainer: trainer.save("requested"),
    "evaluate": lambda trainer: trainer.evaluate("valid"),
    "row": lambda trainer: trainer.events.row(),
    "visualize": lambda trainer: next(h for h in trainer.calls.step if h.hook.serves == "visualize")(trainer),
}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("what", ACTIONS)
def test_an_action_of_one_rank_alone_is_reported(
    what: str, rank: int, tmp_path: Path, messages: Messages
) -> None:
    every = team(2, lambda ranks: ended(ranks, tmp_path, Alone(rank, ACTIONS[what])), seconds=20)
    assert every[rank].startswith("RanksApart: ") and "rank 0" in every[rank] and "rank 1" in every[rank]
    assert re.search(rf"rank {1 - rank}\b[^,]*\bstep 4\b", every[rank])
    messages.check(every[rank])


def test_where_all_hear_of_it_all_tell_the_same(tmp_path: Path, messages: Messages) -> None:
    """Rank 0 reports it once for the session."""

    def begins(ranks: Ranks) -> str:
        own = trainer(ranks, tmp_path)
        with pytest.raises(RanksApart) as raised:
            own.evaluate("valid") if ranks.is_main else own.events.row()
        return str(raised.value)

    first, second = team(2, begins, seconds=20)
    assert first == second and "rank 0" in first and "rank 1" in first
    messages.check(first)


class Options(Hook):
    """One rank changes an option of its optimizer."""

    phase, every = Phase.SCHEDULE, "1"

    def __init__(self, name: str, *, back: bool = False) -> None:
        self._name, self._back = name, back

    def on_step(self, trainer: Trainer) -> None:
        [group] = trainer.stepper.optimizers["main"].optimizer.param_groups
        if trainer.ranks.rank == 1 and trainer.progress.step == STEP:
            self._before, group[self._name] = group[self._name], 0.5
        elif trainer.ranks.rank == 1 and trainer.progress.step == STEP + 1 and self._back:
            group[self._name] = self._before


@pytest.mark.parametrize(("name", "before"), [("lr", 0.1), ("momentum", 0), ("weight_decay", 0)])
def test_an_option_that_one_rank_changes_is_reported(
    name: str, before: float, tmp_path: Path, messages: Messages
) -> None:
    first, second = team(2, lambda ranks: ended(ranks, tmp_path, Options(name)), seconds=20)
    assert first == second and first.startswith("ContractError: ") and "step 5" in first
    options = rf"rank 1\b.*\boptimizers\.main\b.*\b{name} 0\.5\b.*rank 0\b.*\b{name} {before}\b"
    assert re.search(options, first)
    messages.check(first)


def test_an_option_that_differed_for_one_step_is_reported(tmp_path: Path, messages: Messages) -> None:
    first, second = team(2, lambda ranks: ended(ranks, tmp_path, Options("lr", back=True)), seconds=20)
    assert first == second and first.startswith("ContractError: ") and "step 5" in first
    messages.check(first)


def test_a_value_of_one_rank_alone_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def work(ranks: Ranks) -> tuple[dict[str, float], dict[str, float]]:
        own = trainer(ranks, tmp_path, Looks())
        own.fit()
        return own.events.row(), own.evaluate("valid")

    first, second = team(2, work)
    assert first == second and set(first[0]) == {"loss", "accuracy"}
    said = capfd.readouterr().out
    for name in ("train/accuracy", "valid/accuracy"):
        assert len(re.findall(rf"{name}\b.*\brank 1\b", said)) == 1
