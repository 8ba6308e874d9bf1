from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import torch

import roost
from roost.base.system import cpu_wait
from roost.base.system.cpu_wait import CpuTime
from roost.package.results.time_breakdown import PARTS, TimeBreakdown
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.end_condition import EndCondition
from roost.train.hooks import Console, Records, Save, Validate
from roost.train.hooks.console import data_wait_hint, format_metrics, progress_line
from roost.train.optim.optimizer import Optim
from roost.train.step.stepper import Stepper
from tests.messages import Messages
from tests.train.parts import MLP, Still, StopAt, built, loader, plain

ADVICE = re.compile(r"\d+% .*\(.*\d (ms|on) ")
"""Is in a line that a busy machine may add to any run."""


def said(capsys: pytest.CaptureFixture[str], *, advice: bool = False) -> list[str]:
    """The lines since the last look, without advice about the data where it is not asked for."""
    lines = capsys.readouterr().out.splitlines()
    return [text for text in lines if advice or not ADVICE.search(text)]


def test_a_line_per_validation_and_few_between(
    tmp_path: object, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    loaders = {"valid": loader(Still(), 8, shuffle=False)}
    hooks = [Records(f"{tmp_path}/records", "1"), Validate("4"), Console(), Save("100")]
    plain(built(MLP), Still(), hooks, until=9, loaders=loaders).fit()
    begin, *middle, time, end = said(capsys)
    [epoch] = [text for text in middle if text.startswith("epoch 1: ")]
    middle.remove(epoch)
    assert all(fact in begin for fact in ("9 steps", "7 steps", "74 parameters"))
    messages.check(begin)
    assert [text.split("train:")[0] for text in middle] == [
        "epoch 0  step 4/9  ",
        "epoch 1  step 8/9  ",
        "epoch 1  step 9/9  ",
    ]
    assert all("  valid: loss 0." in text for text in middle)
    assert "samples/s" in time
    assert end.startswith("finished ") and end.endswith(" 9")


def test_every_row_when_there_is_time(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    plain(built(MLP), Still(), [Records(f"{tmp_path}/records", "3"), Console(0.0)], until="1ep").fit()
    begin, *middle, run, _ = said(capsys)
    assert "1 epoch" in begin
    assert "samples/s" in run and "epoch" not in run, "the line of the run is that of its only epoch"
    assert [text.split()[:4] for text in middle] == [
        ["epoch", "0/1", "step", "3/7"],
        ["epoch", "0/1", "step", "6/7"],
        ["epoch", "1/1", "step", "7/7"],
    ]


def test_a_stop_and_going_on(
    tmp_path: object, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    for hooks in ([StopAt(2)], []):
        checkpoints = Checkpoints(f"{tmp_path}/checkpoints")
        plain(
            built(MLP), Still(), [Console(), *hooks], until=EndCondition(5, 3), checkpoints=checkpoints
        ).fit()
    first, run, stopped, second, session, finished = said(capsys)
    assert "3 epochs" in first and "5 steps" in first
    assert stopped.startswith("test ") and stopped.endswith(" 2")
    assert "step 2" in second
    assert finished.startswith("finished ") and finished.endswith(" 5")
    assert "run" in run.partition(":")[0] and "session" in session.partition(":")[0]
    for text in (first, stopped, second, finished):
        messages.check(text)


def test_where_the_time_went(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    loaders = {"valid": loader(Still(), 8, shuffle=False)}
    hooks = [Validate("1ep"), Console(), Save("1ep")]
    checkpoints = Checkpoints(f"{tmp_path}/checkpoints")
    plain(built(MLP), Still(), hooks, until="1ep", loaders=loaders, checkpoints=checkpoints).fit()
    *_, run, _ = said(capsys)
    parts = "  ".join(rf"{part} \d+%" for part in (*PARTS, "other"))
    assert re.search(
        rf": \d+\.\ds, [\d,]+ samples/s  {parts}(  CPU wait \d+%)?  memory \d+(\.\d GB| MB)$", run
    ), run


class OneOfTwo(MLP):
    """Its second optimizer has no turn."""

    def update(self, stepper: Stepper, batches: Sequence[Any]) -> Mapping[str, Any]:
        return stepper.run(self.loss, batches, optimizer="main")


class ByHand(OneOfTwo):
    """And moves by the project's own hand."""

    def update(self, stepper: Stepper, batches: Sequence[Any]) -> Mapping[str, Any]:
        values = super().update(stepper, batches)
        stepper.optimizers["tail"].optimizer.step()
        return values


@pytest.mark.parametrize(
    ("until", "runner", "steps"),
    [("3ep", OneOfTwo, 7), (5, OneOfTwo, 5), ("2ep", MLP, None), ("2ep", ByHand, None)],
    ids=["at the end of the first epoch", "at an end before it", "all are used", "moved by hand"],
)
def test_an_optimizer_that_is_never_used(
    until: str | int,
    runner: type[MLP],
    steps: int | None,
    capsys: pytest.CaptureFixture[str],
    messages: Messages,
) -> None:
    made = built(runner)
    first, last = (torch.optim.Adam(made.net.get_submodule(number).parameters()) for number in "03")
    stepper = Stepper({"main": first, "tail": Optim(last, every_n_steps=100)})
    roost.Trainer(made, {"train": loader(Still(), 4)}, stepper, hooks=[Console()], until=until).fit()
    warnings = [text for text in said(capsys) if text.startswith("warning")]
    assert len(warnings) == (steps is not None)
    for warning in warnings:
        assert all(fact in warning for fact in (" tail ", f"{steps} steps", "18 parameters"))
        messages.check(warning)


def test_short_epochs_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    trainer, console = plain(built(MLP), Still(), until="90ep"), Console(10.0)
    timing, progress = trainer.stepper.timing, trainer.progress
    console.on_start(trainer)
    for progress.epoch, seconds in ((1, 4.0), (2, 8.0), (3, 12.1), (4, 23.2), (5, 24.0), (2, 34.0)):
        timing.begin(0, 0, perf_counter() - seconds)
        console.on_epoch(trainer)
    shown = [text.split(",")[0].split("  ")[0] for text in said(capsys)[1:]]
    assert shown == ["epochs 1-3: 12.1s", "epoch 4: 11.1s", "epoch 2: 10.8s"], "a rollback went back to 2"


def test_each_of_a_few_epochs_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain(built(MLP), Still(), [Console()], until="3ep").fit()
    shown = [text.split(":")[0] for text in said(capsys) if "samples/s" in text]
    assert shown == ["epoch 1", "epoch 2", "epoch 3", "the run"]


def test_a_long_wait_for_data_comes_with_advice_once(
    capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    trainer, console = plain(built(MLP), Still(), until="9ep"), Console(10.0)
    console.on_start(trainer)
    for trainer.progress.epoch, seconds in ((1, 20.0), (2, 40.0)):
        trainer.stepper.timing.begin(0, 0, perf_counter() - seconds)
        trainer.stepper.timing.spent[:3] = seconds / 2, 0.0, seconds / 2
        trainer.progress.step = 100
        console.on_epoch(trainer)
    first, advice, second = said(capsys, advice=True)[1:]
    assert first.startswith("epoch 1: ") and second.startswith("epoch 2: ")
    assert all(fact in advice for fact in ("50%", "data", "100.0 ms", "data.num_workers"))
    assert ADVICE.search(advice)
    messages.check(advice)


def test_a_busy_cpu_is_named_once_and_in_each_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, console = plain(built(MLP), Still(), until="9ep"), Console(10.0)
    console.on_start(trainer)
    for trainer.progress.epoch, seconds in ((1, 20.0), (2, 40.0)):
        monkeypatch.setattr(cpu_wait, "read", CpuTime)
        trainer.stepper.timing.begin(0, 0, perf_counter() - seconds)
        monkeypatch.setattr(cpu_wait, "read", lambda seconds=seconds: CpuTime(0.4 * seconds, 0.6 * seconds))
        console.on_epoch(trainer)
    first, advice, second = said(capsys, advice=True)[1:]
    assert "CPU wait 60%" in first and "CPU wait 60%" in second
    assert ADVICE.search(advice) and "busy" in advice and "40%" in advice


@pytest.mark.parametrize(
    ("data", "forward", "advised"),
    [
        (3.0, 5.0, True),
        (1.9, 5.0, False),  # of 10 s: training is busy enough
        (3.0, 0.0, False),  # mode dry: it measures just that
    ],
)
def test_advice(data: float, forward: float, advised: bool) -> None:
    span = TimeBreakdown(10.0, 100, 1000, {"data": data, "forward": forward})
    assert bool(data_wait_hint(span)) == advised
    assert not data_wait_hint(TimeBreakdown(10.0, 100_000, 1000, span.parts)), (
        "workers would not be quicker than 30 µs a step"
    )


def test_a_session_without_a_step_says_nothing_of_time(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        checkpoints = Checkpoints(f"{tmp_path}/checkpoints")
        plain(built(MLP), Still(), [Console(), Save("1ep")], until=2, checkpoints=checkpoints).fit()
    first, run, finished, second, nothing, again = said(capsys)
    assert nothing.startswith("nothing is left to train: ") and "step 2" in nothing
    assert "2 steps" in first and "step 2" in second
    assert "samples/s" in run and "samples/s" not in second + again
    assert finished == again and finished.startswith("finished ") and finished.endswith(" 2")


def test_numbers_are_short_and_stand_under_their_split() -> None:
    trainer = plain(built(MLP), Still(), until="90min")
    row = {"train/a": 0.123456, "lr": 1e-9, "valid/x/a": float("nan"), "train/b": 2.0}
    assert progress_line(trainer, row) == "epoch 0  step 0  train: a 0.123 b 2  valid/x: a nan  lr 1e-09"
    row = {"lr/head": 0.1, "lr": 1e-4, "valid/a": 1.0}
    assert progress_line(trainer, row) == "epoch 0  step 0  valid: a 1  lr: head 0.1 main 0.0001"


def test_many_sets_have_a_line_each() -> None:
    trainer = plain(built(MLP), Still(), until="90min")
    row = {f"valid/{name}/{metric}": 1.0 for name in "abcdefgh" for metric in ("loss", "accuracy", "f1")}
    head, *others = progress_line(trainer, {**row, "lr": 0.1}).split("\n")
    assert head == "epoch 0  step 0" and len(others) == 9
    assert others[0] == "  valid/a: loss 1 accuracy 1 f1 1" and others[-1] == "  lr 0.1"


def test_rates_of_groups_come_last_and_statistics_not_at_all() -> None:
    row = {
        "train/loss": 0.5,
        "stats/grad_norm": 1.0,
        "lr": 0.1,
        "lr/main/0": 0.1,
        "lr/main/1": 0.2,
        "valid/loss": 1.0,
    }
    assert format_metrics(row) == "train: loss 0.5  valid: loss 1  lr: main 0.1  lr/main: 0 0.1 1 0.2"
