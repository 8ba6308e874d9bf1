"""A training in which the device fails at step 3, for the tests beside it.

    python -m tests.gpu.faults assert|memory forward|backward|row|save raise|skip FOLDER

Prints JSON: the error that ended the run, or what was skipped.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roost.base.exception_record import record_exception
from roost.package.checkpoints.retention import RetentionPolicy
from roost.train.accelerators.device_errors import breaks_device, is_device_error
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.failures.black_box_recorder import BlackBoxRecorder
from roost.train.failures.recovery import Recovery
from roost.train.hook import Hook, Phase
from roost.train.hooks import Records, Save
from roost.train.step.nonfinite_check import NonfiniteGuard
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from roost.worker.causes import cause_table
from roost.worker.causes.cause import FailureContext
from tests.gpu.device import DEVICE
from tests.train.parts import MLP, Still, built, loader

STEP = 3


def fail(kind: str) -> Tensor:
    if kind == "memory":
        return torch.empty(1 << 50, device=DEVICE)
    return torch.zeros(2, device=DEVICE)[torch.tensor([5], device=DEVICE)].sum()


class FailsBackward(torch.autograd.Function):
    kind = ""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient + fail(FailsBackward.kind)


class Faulty(MLP):
    kind = place = ""

    def loss(self, batch: Any) -> Any:
        values = dict(super().loss(batch))
        if self.progress.step + 1 == STEP and self.training:
            if self.place == "forward":
                values["loss"] = values["loss"] + fail(self.kind)
            if self.place == "backward":
                values["loss"] = FailsBackward.apply(values["loss"])
        return values


class FailsAt(Hook):
    """At the row or the save of that step."""

    def __init__(self, kind: str, place: str) -> None:
        self.kind, self.place = kind, place
        self.phase = Phase.RECORD

    def on_step(self, trainer: Trainer) -> None:
        if self.place == "row" and trainer.progress.step == STEP:
            trainer.events.log({"late": fail(self.kind)}, of_step=True)

    def before_save(self, trainer: Trainer) -> None:
        if self.place == "save" and trainer.progress.step == STEP:
            trainer.events.log({"late": fail(self.kind)}, of_step=True)


def main() -> None:
    kind, place, policy, folder = *sys.argv[1:4], Path(sys.argv[4])
    runner = built(Faulty).to(DEVICE)
    runner.kind, runner.place = FailsBackward.kind, _ = kind, place
    recovery = Recovery(
        on_step_error=policy,  # type: ignore[arg-type]
        black_box=BlackBoxRecorder(folder / "blackbox", 1),
        log=folder / "skipped.jsonl",
        session=1,
    )
    trainer = Trainer(
        runner,
        {"train": loader(Still(), pin_memory=DEVICE != "cpu")},
        Stepper(torch.optim.AdamW(runner.parameters()), guard=NonfiniteGuard(runner)),
        hooks=[FailsAt(kind, place), Records(folder / "records", 1), Save(1)],
        checkpoints=Checkpoints(folder / "Checkpoints", RetentionPolicy(fast=2)),
        until=6,
        seed=3,
        recovery=recovery,
    )
    found: dict[str, Any] = {"end": "finished"}
    try:
        trainer.fit()
    except Exception as error:  # noqa: BLE001  - it is what the test asks about
        cause = cause_table.find(record_exception(error), FailureContext())
        found = {
            "end": type(error).__name__,
            "text": str(error).partition("\n")[0],
            "is_device": is_device_error(error),
            "breaks": breaks_device(error),
            "notes": getattr(error, "__notes__", []),
            "cause": cause.description if cause is not None else None,
        }
    found["skipped"] = recovery.num_skipped
    found["inexact"] = trainer.inexact
    found["boxes"] = len(list((folder / "blackbox").glob("*")))
    found["newest"] = (
        trainer.checkpoints.newest.step if trainer.checkpoints and trainer.checkpoints.newest else 0
    )
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
