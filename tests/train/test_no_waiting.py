"""Between two rows nothing is read back from the device, whatever is configured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.package.checkpoints.retention import BestRule as Rule
from roost.package.checkpoints.retention import RetentionPolicy
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.failures.recovery import Recovery
from roost.train.hook import Hook, Phase
from roost.train.hooks import (
    Averaging,
    Best,
    Console,
    EarlyStop,
    Records,
    Save,
    Schedule,
    Statistics,
    Unsaved,
    Validate,
)
from roost.train.optim.optimizer import LR_SCALE, Optim
from roost.train.step.nonfinite_check import NonfiniteGuard
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.train.parts import MLP, Still, built, loader
from tests.train.reads import CountsReads

STEPS, ROW, VALIDATION, SAVE = 80, 10, 20, 40


class Talks(MLP):
    """Logs, and weighs its batches."""

    def loss(self, batch: Any) -> dict[str, Any]:
        values = super().loss(batch)
        self.log(extra=values["accuracy"], step=float(self.progress.step))
        return {**values, "weight": batch[0].abs().sum()}


class Looks(Hook):
    """Counts what each step reads, with everything that comes after it in the loop."""

    phase = Phase.REPORT

    def __init__(self, counter: Any) -> None:
        self.counter, self.seen = counter, [0]

    def on_start(self, trainer: Trainer) -> None:
        self.counter.__enter__()  # what comes before is no step

    def on_step(self, trainer: Trainer) -> None:
        self.seen.append(getattr(self.counter, "reads", 0))

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        self.counter.__exit__(None, None, None)


def with_everything(
    folder: Path, last: Hook, *, precision: Any = "bf16", device: str = "cpu", fused: bool = True
) -> Trainer:
    runner = built(Talks).to(device)
    groups = [{"params": runner.net[0].parameters(), LR_SCALE: 0.5}, {"params": runner.net[3].parameters()}]
    optimizer: Any = torch.optim.AdamW(groups, lr=0.01, fused=fused)
    optim = Optim(optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS), max_grad_norm=0.5)
    rules = (Rule(monitor="valid/loss", top_k=2),)
    hooks = [
        Records(folder / "records", ROW),
        Save(SAVE),
        Averaging("ema"),
        Averaging("swa", method="swa", every=3, start=5),
        Console(),
        Unsaved(),
        Schedule(),
        Validate(VALIDATION),
        Best(rules),
        EarlyStop("train/loss", patience=100),
        Statistics(3, updates=True),
        last,
    ]
    pinned = {"pin_memory": device != "cpu"}
    return Trainer(
        runner,
        {"train": loader(Still(), **pinned), "valid": loader(Still(), 8, shuffle=False, **pinned)},
        Stepper(optim, accumulation=2, precision=precision, guard=NonfiniteGuard(runner)),
        hooks=hooks,
        checkpoints=Checkpoints(folder / "Checkpoints", RetentionPolicy(fast=2, best=rules)),
        until=STEPS,
        seed=3,
        recovery=Recovery(on_non_finite="skip", on_step_error="skip"),
    )


# Torch's modes see every call, or every operation below it: for the second our own short cuts stay.
@pytest.mark.parametrize("counter", [CountsReads, CountsReads.Below])
@pytest.mark.parametrize("precision", [32, "bf16", "fp16"])
def test_nothing_is_read_back_between_rows(
    counter: Callable[[], Any], precision: Any, tmp_path: Path
) -> None:
    looks = Looks(counter())
    trainer = with_everything(tmp_path, looks, precision=precision)
    assert trainer.fit() == "finished"
    reads = [after - before for before, after in zip(looks.seen, looks.seen[1:], strict=False)]
    assert len(reads) == STEPS
    waited = {step for step, count in enumerate(reads, 1) if count}
    if counter is CountsReads:
        assert waited == set(range(ROW, STEPS + 1, ROW))
    assert waited <= set(range(ROW, STEPS + 1, ROW))


def test_the_counter_sees_an_optimizer_that_reads(tmp_path: Path) -> None:
    looks = Looks(CountsReads())
    with_everything(tmp_path, looks, fused=False).fit()
    assert all(after > before for before, after in zip(looks.seen, looks.seen[1:], strict=False))


@pytest.mark.needs_gpu
@pytest.mark.parametrize("precision", [32, "bf16", "fp16"])
def test_a_gpu_never_waits_in_a_step(precision: Any, tmp_path: Path) -> None:
    """Torch itself raises where the host would wait; hooks may, when they are due."""

    class Strict(Hook):
        phase = Phase.MODEL

        def before_step(self, trainer: Trainer) -> None:
            # The first steps may allocate, load kernels and write what they find out about them.
            torch.cuda.set_sync_debug_mode("error" if trainer.progress.step > 2 else "default")

        def on_step(self, trainer: Trainer) -> None:
            if trainer.progress.step % ROW == 0:
                torch.cuda.set_sync_debug_mode("default")

        def on_stop(self, trainer: Trainer, reason: str) -> None:
            torch.cuda.set_sync_debug_mode("default")

    trainer = with_everything(tmp_path, Strict(), precision=precision, device="cuda")
    assert trainer.fit() == "finished" and trainer.progress.step == STEPS
