"""Tells in plain lines how the training goes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from roost.base.interval import NEVER
from roost.train.hook import Hook, Phase

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Console(Hook):
    """Prints a line per validation, and at most one every ``seconds`` between them."""

    phase = Phase.REPORT
    every = ()  # no interval: a row asks for it
    serves = "report"

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._last = 0.0

    def on_start(self, trainer: Trainer) -> None:
        self._last = time.monotonic()
        progress = trainer.progress
        numbers = sum(p.numel() for p in trainer.runner.parameters())
        begin = f"going on from step {progress.step}" if progress.step else "training"
        print(
            f"{begin}: {_goal(trainer)}, {trainer.steps_per_epoch} steps per epoch, {numbers:,} parameters",
            flush=True,
        )

    def on_step(self, trainer: Trainer) -> None:
        now = time.monotonic()
        if trainer.results or now - self._last >= self._seconds:
            self._last = now
            print(line(trainer, trainer.row), flush=True)

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        if not trainer.at_end:
            return  # it failed; whoever catches the error tells it
        print(f"{reason} at step {trainer.progress.step}", flush=True)


def _goal(trainer: Trainer) -> str:
    until = trainer.until
    parts = [
        f"{until.epochs} epochs" if until.epochs else "",
        f"{until.steps} steps" if until.steps else "",
        f"{until.seconds:g} s" if until.seconds else "",
    ]
    return "until " + " or ".join(part for part in parts if part)


def line(trainer: Trainer, row: dict[str, float]) -> str:
    """``epoch 2/5  step 40/100  train: loss 0.312  valid: loss 0.298 accuracy 0.91  lr 0.001``"""
    progress, until = trainer.progress, trainer.until
    epochs = f"/{until.epochs}" if until.epochs else ""
    steps = f"/{trainer.total_steps}" if trainer.total_steps < NEVER else ""
    return f"epoch {progress.epoch}{epochs}  step {progress.step}{steps}  {metrics(row)}"


def metrics(row: dict[str, float]) -> str:
    """The values of a row, those of one split together under its name."""
    groups: dict[str, list[str]] = {}
    for name, value in row.items():
        split, slash, short = name.rpartition("/")
        groups.setdefault(split, []).append(f"{short if slash else name} {value:.3g}")
    # What belongs to no split (the learning rate) comes last.
    ordered = sorted(groups.items(), key=lambda group: group[0] == "")
    return "  ".join(f"{split}: {' '.join(shown)}" if split else " ".join(shown) for split, shown in ordered)
