from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from roost.base.errors import ConfigError
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.retention import BestRule as Rule
from roost.package.checkpoints.retention import RetentionPolicy
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.hooks import Best, Save, Validate
from tests.messages import Messages
from tests.train.parts import MLP, Still, bits, built, loader, plain

NAN, INF = float("nan"), float("inf")


class Scripted(MLP):
    """Its validations give these values, one after the other."""

    values: Sequence[float]

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        return {"score": torch.tensor(self.values[self.progress.step - 1], dtype=torch.float64)}


def saves(folder: Path, values: Sequence[float], *rules: Rule) -> list[tuple[int, str, dict[str, float]]]:
    """(step, reason, metrics) of each checkpoint that is kept."""
    runner = built(Scripted)
    runner.values = values
    trainer = plain(
        runner,
        Still(),
        [Validate("1"), Best(rules), Save("100")],
        until=len(values),
        loaders={"valid": loader(Still(8), 8, shuffle=False)},
        checkpoints=Checkpoints(folder, RetentionPolicy(fast=1, best=rules)),
    )
    trainer.fit()
    return [(info.step, info.reason, info.metrics) for info in checkpoint.read_manifests(folder)]


MIN = Rule(monitor="valid/score")


def steps(found: list[tuple[int, str, dict[str, float]]]) -> list[int]:
    return [step for step, *_ in found]


def test_saves_at_the_step_of_a_new_best(tmp_path: Path) -> None:
    assert saves(tmp_path, [3.0, 1.0, 2.0, 1.0, 5.0], MIN) == [
        (2, "best", {"valid/score": 1.0}),
        (5, "final", {"valid/score": 5.0}),
    ]


@pytest.mark.parametrize(
    ("values", "rule", "kept"),
    [
        ([1.0, 3.0, 2.0, 3.0], Rule(monitor="valid/score", mode="max"), [2, 4]),
        ([3.0, 1.0, 2.0, 1.5, 9.0], Rule(monitor="valid/score", top_k=2), [2, 4, 5]),
        ([2.0, 2.0, 2.0], MIN, [1, 3]),
        ([2.0, NAN, 1.0, NAN], MIN, [3, 4]),
        ([NAN, INF, 1.0, -INF], MIN, [3, 4]),
    ],
)
def test_which_are_kept(values: list[float], rule: Rule, kept: list[int], tmp_path: Path) -> None:
    """The last is kept as the newest, the one before it for safety."""
    assert set(kept) <= set(steps(saves(tmp_path, values, rule)))
    assert set(steps(saves(tmp_path, values, rule))) <= {*kept, len(values) - 1}


def test_nan_and_infinity_are_never_the_best(tmp_path: Path) -> None:
    found = saves(tmp_path, [NAN, INF, NAN], MIN)
    assert [reason for _, reason, _ in found] == ["final"]


def test_several_rules(tmp_path: Path) -> None:
    rules = (MIN, Rule(monitor="valid/score", mode="max"))
    assert {1, 2} <= set(steps(saves(tmp_path, [1.0, 5.0, 2.0, 3.0, 3.0], *rules)))


def test_a_monitor_that_is_never_reported(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        saves(tmp_path, [1.0], MIN, Rule(monitor="valid/f1"))
    assert refused.value.setting == "checkpoint.best.1.monitor"
    assert all(fact in str(refused.value) for fact in ("'valid/f1'", "valid/score"))
    messages.check(refused.value)


def test_state_round_trip() -> None:
    first = Best([MIN, Rule(monitor="valid/f1", mode="max", top_k=2)])
    first.best = [[(1.0, 3)], [(0.9, 4), (0.8, 2)]]
    second = Best(first.rules)
    second.load_state_dict(first.state_dict())
    assert second.best == first.best
    assert bits(second.state_dict()) == bits(first.state_dict())


def test_a_rule_that_was_changed_begins_anew_and_the_others_go_on() -> None:
    first = Best([MIN, Rule(monitor="valid/f1", mode="max", top_k=2)])
    first.best = [[(1.0, 3)], [(0.9, 4), (0.8, 2)]]
    second = Best([Rule(monitor="valid/score", mode="max"), Rule(monitor="valid/f1", mode="max")])
    second.load_state_dict(first.state_dict())
    assert second.best == [[], [(0.9, 4)]]
