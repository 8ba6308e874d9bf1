"""A small project in which something may go wrong at every place where a rank runs its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from faults import RANK, Fault, Reverses
from torch import Tensor
from torch.nn import functional

import roost


class Rows(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """48 of them; reading one may fail: the ``at``-th that this process reads."""

    draws_randomness = False

    def __init__(self, size: int, fault: Fault, where: str) -> None:
        generator = torch.Generator().manual_seed(size)
        self.x, self.y = torch.randn(size, 8, generator=generator), torch.arange(size) % 3
        self.fault, self.where, self.num_reads = fault, where, 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.num_reads += 1
        self.fault.may_happen(self.where, self.num_reads)
        return self.x[index], self.y[index]


class Dataset(roost.Dataset):
    def prepare(self) -> None:
        Fault({**self.args["fault"]}).may_happen("prepare", self.args["fault"]["at"])

    def build(self) -> roost.Data:
        fault, num_joined = Fault(self.args["fault"]), 0
        fault.may_happen("data", self.args["fault"]["at"])

        def join(samples: Sequence[Any]) -> Any:
            nonlocal num_joined
            num_joined += 1
            fault.may_happen("collate", num_joined)
            return torch.utils.data.default_collate(list(samples))

        return roost.Data(
            train=Rows(48, fault, "read"), valid=Rows(21, fault, "read of valid"), collate={"train": join}
        )


class Own(torch.optim.SGD):
    """Counts its steps."""

    def __init__(self, parameters: Any, fault: Fault, runner: Runner) -> None:
        super().__init__(parameters, lr=0.05)
        self.fault, self.runner = fault, runner

    def step(self, closure: Any = None) -> Any:
        self.fault.may_happen("optimizer", self.runner.progress.step + 1)
        return super().step(closure)


class Runner(roost.Runner):
    def build(self) -> None:
        self.fault = Fault(self.args["fault"])
        self.fault.may_happen("model", self.args["fault"]["at"])
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        return {"main": Own(self.parameters(), self.fault, self)}

    def loss(self, batch: Any) -> Tensor:
        step, (x, y) = self.progress.step + 1, batch
        self.fault.may_happen("loss", step)
        logits = Reverses.apply(self.net(x), self.fault, step)
        return functional.cross_entropy(logits, y)

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        x, y = batch
        self.fault.may_happen("evaluate", self.progress.step)
        return {"loss": functional.cross_entropy(self.net(x), y, reduction="none")}

    def summarize(self, values: Mapping[str, Any], split: str) -> Mapping[str, float]:
        self.fault.may_happen("summarize", self.progress.step)
        return {"worst": float(values["loss"].max())}


class Meddler(roost.Hook):
    """Runs code of the project's at each step, and in each save."""

    every = 1

    def on_start(self, trainer: roost.Trainer) -> None:
        self.trainer, self.fault = trainer, Fault(trainer.runner.args["fault"])
        self.fault.may_happen("start", trainer.progress.step)

    def on_step(self, trainer: roost.Trainer) -> None:
        self.fault.may_happen("hook", trainer.progress.step)
        if self.fault.is_here("save alone", trainer.progress.step):
            trainer.save("requested")

    def state_dict(self) -> dict[str, Any]:
        self.fault.may_happen("save", self.trainer.progress.step)
        return {"rank": RANK}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
