from __future__ import annotations

from collections.abc import Mapping
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
from roost.train.evaluation.monitored_metrics import check_monitor, is_row_value
from roost.train.events import Events
from roost.train.hook import Hook, Phase
from roost.train.hooks import Best, EarlyStop, Records, Save, Validate
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, Gan, Still, StopAt, bits, built, loader, plain, rows_of


class Seen(Hook):
    """Keeps the results of each validation."""

    phase = Phase.DECIDE

    def __init__(self, *monitors: str) -> None:
        self.asked = monitors
        self.results: list[dict[str, float]] = []

    def monitors(self, trainer: Trainer) -> dict[str, str]:
        return {f"setting.{number}": name for number, name in enumerate(self.asked)}

    def on_eval(self, trainer: Trainer, results: Mapping[str, float]) -> None:
        self.results.append(dict(results))


class CountsPeeks(Events):
    def __init__(self) -> None:
        super().__init__()
        self.peeks = 0

    def peek(self) -> dict[str, float]:
        self.peeks += 1
        return super().peek()


def watched(
    folder: Path, *monitors: str, until: int = 8, runner: Any = MLP, log: str = "3", **options: Any
) -> tuple[Trainer, Seen]:
    seen = Seen(*monitors)
    loaders = {"valid": loader(Still(), 8, shuffle=False)}
    hooks = [Records(folder / "records", log), Validate("4"), seen, *options.pop("hooks", ())]
    trainer = plain(built(runner), Still(), hooks, until=until, loaders=loaders, **options)
    trainer.events = CountsPeeks()
    return trainer, seen


def test_a_hook_gets_the_values_of_the_row_of_that_step(tmp_path: Path) -> None:
    trainer, seen = watched(tmp_path, "train/loss", "lr", "valid/accuracy")
    trainer.fit()
    rows = {row["step"]: row for row in rows_of(tmp_path)}
    assert list(rows) == [3, 4, 6, 8]
    for step, results in zip((4, 8), seen.results, strict=True):
        assert results.keys() == {"valid/loss", "valid/accuracy", "train/loss", "lr"}
        assert all(results[name] == rows[step][name] for name in results), "to the bit"


def test_the_records_are_the_same_with_and_without_a_look(tmp_path: Path) -> None:
    for name, asked in (("a", []), ("b", ["train/loss", "lr"])):
        watched(tmp_path / name, *asked)[0].fit()
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")


def test_the_row_is_not_read_without_a_monitor_of_it(tmp_path: Path) -> None:
    trainer, _ = watched(tmp_path, "valid/loss")
    trainer.fit()
    assert trainer.events.peeks == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("monitor", ["train/f1", "valid/f1", "loss", "lr/other", "stats/grad_norm"])
def test_an_unreported_metric_is_an_error_at_the_first_validation(
    monitor: str, tmp_path: Path, messages: Messages
) -> None:
    class Summarizes(MLP):
        """So the metrics are unknown before."""

        def summarize(self, values: Any, split: str) -> dict[str, float]:
            return {"extra": 1.0}

    trainer, _ = watched(tmp_path, monitor, runner=Summarizes)
    said = r": valid/accuracy, valid/extra, valid/loss\b.*: lr, train/accuracy, train/loss\b"
    with pytest.raises(ConfigError, match=rf"'{monitor}'.*{said}") as refused:
        trainer.fit()
    assert refused.value.setting == "setting.0"
    messages.check(refused.value)
    assert trainer.progress.step == 4


def test_an_unknown_metric_is_an_error_before_the_first_step(tmp_path: Path, messages: Messages) -> None:
    trainer, _ = watched(tmp_path, "valid/f1")
    with pytest.raises(ConfigError, match=r"'valid/f1'.*: valid/accuracy") as refused:
        trainer.fit()
    messages.check(refused.value)
    assert trainer.progress.step == 0


def test_a_value_that_was_there_before_is_nan_where_no_step_gave_it(tmp_path: Path) -> None:
    """The generator moves in every sixth step, so the second of these rows has no loss of it."""

    class Rare(Gan):
        def update(self, stepper: Stepper, batches: Any) -> Any:
            values = stepper.run(self.d_loss, batches, optimizer="d")
            if self.progress.step % 6 == 0:
                values |= stepper.run(self.g_loss, batches, optimizer="g")
            return values

        def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
            return {"one": torch.ones(len(batch[0]))}

    def run(folder: Path, *hooks: Hook) -> tuple[Trainer, Seen]:
        runner = built(Rare)
        stepper = Stepper(
            {
                "d": torch.optim.SGD(runner.d.parameters(), lr=0.1),
                "g": torch.optim.SGD(runner.g.parameters(), lr=0.1),
            }
        )
        seen, loaders = Seen("train/g_loss"), {"valid": loader(Still(), 8, shuffle=False)}
        saves = {"checkpoints": Checkpoints(folder / "c")}
        all_hooks = [Records(folder / "records", "2"), Validate("2"), Save("100"), seen, *hooks]
        return plain(runner, Still(), all_hooks, until=8, loaders=loaders, stepper=stepper, **saves), seen

    trainer, seen = run(tmp_path / "a")
    trainer.fit()
    losses = [results["train/g_loss"] for results in seen.results]
    assert [loss == loss for loss in losses] == [True, False, False, True]
    assert ["train/g_loss" in row for row in rows_of(tmp_path / "a")] == [True, False, False, True]
    first, resumed = run(tmp_path / "b", StopAt(3))
    first.fit()
    second, resumed = run(tmp_path / "b")
    assert second.fit() == "finished", "what was there before the stop is known"
    assert bits(resumed.results[-1]) == bits(seen.results[-1])


def test_the_best_by_a_metric_of_training_is_in_the_checkpoint(tmp_path: Path) -> None:
    rules = (Rule(monitor="train/loss", top_k=2), Rule(monitor="train/accuracy", mode="max"))
    checkpoints = Checkpoints(tmp_path / "c", RetentionPolicy(fast=1, best=rules))
    trainer, _ = watched(
        tmp_path, hooks=[Best(rules), Save("100")], until=20, checkpoints=checkpoints, log="4"
    )
    trainer.fit()
    rows = {row["step"]: row for row in rows_of(tmp_path)}
    ranked = checkpoints.ranked(rules[0])
    losses = sorted((row["train/loss"], step) for step, row in rows.items())
    assert [(info.metrics["train/loss"], info.step) for info in ranked[:2]] == losses[:2]
    best = max(rows, key=lambda step: (rows[step]["train/accuracy"], -step))
    assert best in [info.step for info in checkpoint.read_manifests(tmp_path / "c")]


def test_early_stopping_by_the_loss_of_training(tmp_path: Path) -> None:
    hook = EarlyStop("train/loss", patience=1, min_delta=10.0)
    trainer, _ = watched(tmp_path, hooks=[hook], until=40)
    assert trainer.fit() == "finished" and trainer.progress.step == 8
    assert hook.best == next(row["train/loss"] for row in rows_of(tmp_path) if row["step"] == 4)


def test_names(messages: Messages) -> None:
    assert [is_row_value(name) for name in ("lr", "lr/d", "train/loss", "stats/grad_norm")] == [True] * 4
    assert [is_row_value(name) for name in ("loss", "valid/loss", "lrx", "training/loss")] == [False] * 4
    check_monitor({"valid/loss"}, "lr", setting="s", row={"lr"})
    with pytest.raises(ConfigError, match=r"\btrain/loss\b.*Runner\.loss\(\)") as refused:
        check_monitor({"valid/one"}, "train/los", setting="s", row={"train/loss"})
    messages.check(refused.value)
