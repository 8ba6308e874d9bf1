"""The hook that prints the progress of training in plain lines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from roost.base.interval import NEVER
from roost.base.system import cpu_wait
from roost.package.records import STATS
from roost.package.results.time_breakdown import TimeBreakdown
from roost.train.hook import Hook, Phase
from roost.train.optim.optimizer_config import describe_optimizers

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


_FEW_EPOCHS = 20
"""A run of no more epochs prints a breakdown after each."""
_LONG_WAIT_SHARE = 0.2
_SHORT_WAIT_SECONDS = 0.002
"""Seconds of waiting per step. Loader workers need half a millisecond to pass a batch, so below this limit
more of them help little."""


class Console(Hook):
    """Prints a line for each validation, and at most one every ``seconds`` between them; a breakdown of the
    time after each of a few epochs (after one of many at most as often), and at the end of the run."""

    phase = Phase.REPORT
    every = ()  # no interval: each row requests it
    serves = "report"

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._last = 0.0
        self._reported, self._epoch = TimeBreakdown(), 0
        """The time breakdown up to the last printed one, and the number of epochs at that time."""
        self._resumed = self._hinted = self._named_busy_cpu = False
        self._has_indices = True

    def on_start(self, trainer: Trainer) -> None:
        self._last = time.monotonic()
        self._has_indices = trainer.loaders["train"].has_indices
        for optimizer in describe_optimizers(trainer.stepper.optimizers):
            print(optimizer, flush=True)
        progress = trainer.progress
        self._reported, self._epoch, self._resumed = TimeBreakdown(), progress.epoch, progress.step > 0
        numbers = sum(p.numel() for p in trainer.runner.parameters())
        plural = "s" * (trainer.steps_per_epoch != 1)
        begin = f"continuing from step {progress.step}" if progress.step else "training"
        length = f"{trainer.steps_per_epoch} step{plural} per epoch"
        print(f"{begin}: {_format_goal(trainer)}, {length}, {numbers:,} parameters", flush=True)
        if trainer.finished and not trainer.ended_early:  # early stopping has said so itself
            print(f"nothing is left to train: step {progress.step} is at the end already", flush=True)

    def on_step(self, trainer: Trainer) -> None:
        now = time.monotonic()
        if trainer.results or now - self._last >= self._seconds:
            self._last = now
            print(progress_line(trainer, trainer.row), flush=True)

    def on_epoch(self, trainer: Trainer) -> None:
        if trainer.progress.epoch == 1:
            _warn_of_unused_optimizers(trainer)
        now, last = _elapsed(trainer), trainer.progress.epoch
        first = min(self._epoch + 1, last)  # a rollback went back
        span = now - self._reported
        is_all = trainer.finished and not self._reported.steps  # the line of the whole run says the same
        has_few = trainer.total_steps <= _FEW_EPOCHS * trainer.steps_per_epoch
        if (has_few or span.seconds >= self._seconds) and not is_all:
            self._print_breakdown(f"epoch {last}" if first == last else f"epochs {first}-{last}", span)
            self._reported, self._epoch = now, last
            busy = cpu_wait.format_busy(span.cpu, threads=torch.get_num_threads())
            if busy and not self._named_busy_cpu:
                print(busy, flush=True)
                self._named_busy_cpu = True

    def _print_breakdown(self, what: str, span: TimeBreakdown) -> None:
        """Prints the time breakdown of a part of the run; once, a hint about a long wait for data."""
        print(f"{what}: {span}", flush=True)
        if not self._hinted and (found := data_wait_hint(span, has_indices=self._has_indices)):
            print(found, flush=True)
            self._hinted = True

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        if trainer.has_failed:
            return  # the error is printed where it is caught
        if trainer.finished and trainer.progress.epoch == 0:
            _warn_of_unused_optimizers(trainer)
        if (span := _elapsed(trainer)).steps:
            self._print_breakdown("this session" if self._resumed else "the run", span)
        print(f"{reason} at step {trainer.progress.step}", flush=True)


def unused_optimizers(trainer: Trainer) -> list[str]:
    """Returns the text of a warning for each optimizer that no step has used."""
    lines = []
    for name in trainer.stepper.unused():
        number = sum(p.numel() for p in trainer.stepper.optimizers[name].parameters)
        steps = f"{trainer.progress.step} step{'s' * (trainer.progress.step != 1)}"
        lines.append(f"optimizer {name} was never used in {steps}: its {number:,} parameters do not change")
    return lines


def _warn_of_unused_optimizers(trainer: Trainer) -> None:
    for text in unused_optimizers(trainer):
        print(f"warning: {text}", flush=True)


def _elapsed(trainer: Trainer) -> TimeBreakdown:
    return trainer.stepper.timing.session_span(trainer.progress.step, trainer.progress.samples)


def data_wait_hint(span: TimeBreakdown, *, has_indices: bool = True) -> str:
    """The hint for a run that waits long for its data; empty if it does not, or would not be faster.

    Args:
        span: The time breakdown of the run.
        has_indices: Whether the training set has indices; otherwise the number of loader workers is fixed.
    """
    waited, fetched = span.parts.get("data", 0.0), span.shares.get("data", 0.0)
    trained = span.parts.get("forward", 0.0) > 0
    if not trained or fetched < _LONG_WAIT_SHARE or waited < span.steps * _SHORT_WAIT_SECONDS:
        return ""
    ways = "a faster __getitem__, or more data.num_workers," if has_indices else "a faster training set"
    return (
        f"training waits {fetched:.0%} of its time for data ({waited / span.steps * 1000:.1f} ms a step): "
        f"{ways} may help"
    )


def _format_goal(trainer: Trainer) -> str:
    until = trainer.until
    parts = [
        f"{until.epochs} epoch{'s' * (until.epochs != 1)}" if until.epochs else "",
        f"{until.steps} step{'s' * (until.steps != 1)}" if until.steps else "",
        f"{until.seconds:g} s" if until.seconds else "",
    ]
    return "until " + " or ".join(part for part in parts if part)


def progress_line(trainer: Trainer, row: dict[str, float]) -> str:
    """``epoch 2/5  step 40/100  train: loss 0.312  valid: loss 0.298 accuracy 0.91  lr 0.001``"""
    progress, until = trainer.progress, trainer.until
    epochs = f"/{until.epochs}" if until.epochs else ""
    steps = f"/{trainer.total_steps}" if trainer.total_steps < NEVER else ""
    return format_row(f"epoch {progress.epoch}{epochs}  step {progress.step}{steps}", row)


_MAX_LINE_CHARACTERS = 240


def format_row(head: str, row: dict[str, float]) -> str:
    """The values of a row behind ``head``; of several sets and averages each in a line below it."""
    shown = _group_metrics(row)
    whole = "  ".join([head, *shown])
    return whole if len(whole) <= _MAX_LINE_CHARACTERS else "\n  ".join([head, *shown])


def format_metrics(row: dict[str, float]) -> str:
    """The values of a row but for statistics, those of one split together under its name."""
    return "  ".join(_group_metrics(row))


def _group_metrics(row: dict[str, float]) -> list[str]:
    groups: dict[str, list[str]] = {}
    has_several = any(name.startswith("lr/") for name in row)
    for name, value in row.items():
        if name.startswith(STATS):
            continue
        split, slash, short = name.rpartition("/")
        if name == "lr" and has_several:
            split, slash, short = "lr", "/", "main"
        groups.setdefault(split, []).append(f"{short if slash else name} {value:.3g}")
    # What belongs to no split (the learning rate) comes last.
    ordered = sorted(groups.items(), key=lambda group: group[0].partition("/")[0] in ("", "lr"))
    return [f"{split}: {' '.join(shown)}" if split else " ".join(shown) for split, shown in ordered]
