"""The cost of saving and loading a large state, compared with one copy of it in memory.

    python bench/checkpoint.py [--mb 1000] [--rounds 5] [--threads 1]

The state is a model with Adam; with the moments it has ``--mb`` megabytes in float32. *Blocked* is the time
for which the training thread does nothing else: the time of the call; inside the Trainer, how much longer the
step that saves and the step after it take than two other steps. *Durable* is the time from the call until the
files are synced and renamed (torch.save and DCP sync nothing: their bytes are then only in the page cache).
Loading is into an existing model and optimizer, from files in the page cache. The methods alternate in the
same run; figures are medians, ratios are of medians.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import roost
from roost.train import hooks
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.model.module_state import ModuleState
from roost.train.progress import Progress

Wait = Callable[[], Any]
WIDTH, BATCH_SIZE = 1024, 128
BYTES_PER_LAYER = WIDTH * WIDTH * 4 * 3


class Runner(roost.Runner):
    def build(self) -> None:
        layers = max(1, round(self.args["mb"] * 1e6 / BYTES_PER_LAYER))
        self.net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))

    def loss(self, batch: Any) -> Tensor:
        loss: Tensor = self.net(batch).square().mean()
        return loss


class Inputs(torch.utils.data.Dataset[Any]):
    draws_randomness = False

    def __init__(self) -> None:
        self.x = torch.randn(BATCH_SIZE, WIDTH)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Tensor:
        return self.x[index]


class Clock(roost.Hook):
    """Records when each step ended, and whether a checkpoint was being written then."""

    phase = roost.Phase.REPORT

    def __init__(self) -> None:
        self.ended: list[float] = []
        self.writes: list[bool] = []

    def on_step(self, trainer: roost.Trainer) -> None:
        self.ended.append(time.perf_counter())
        self.writes.append(trainer.checkpointer.is_writing)


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def new_state(mb: int) -> tuple[Runner, torch.optim.Adam]:
    torch.manual_seed(0)
    runner = Runner({"mb": mb})
    runner.build()
    optimizer = torch.optim.Adam(runner.parameters(), lr=1e-4, fused=True)
    runner.loss(torch.randn(2, WIDTH)).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return runner, optimizer


def measure_calls(mb: int, rounds: int, folder: Path) -> dict[str, tuple[list[float], list[float]]]:
    """Returns the seconds (blocked, until durable) of each method, called outside a Trainer."""
    runner, optimizer = new_state(mb)
    state = {"model": runner.state_dict(), "optimizer": optimizer.state_dict()}
    tensors = [*runner.state_dict().values()]
    tensors += [v for s in optimizer.state.values() for v in s.values() if v.numel() > 1]
    kept = [np.zeros_like(one.detach().numpy()) for one in tensors]
    checkpoints = roost.Checkpoints(folder / "roost")
    parts: dict[str, Any] = {"model": ModuleState(runner), "optimizer": optimizer}

    def memcpy() -> None:
        for to, one in zip(kept, tensors, strict=True):
            np.copyto(to, one.detach().numpy())

    def dcp_async_save() -> Wait:
        written: Any = dcp.async_save(state, checkpoint_id=folder / "dcp")  # type: ignore[attr-defined]
        return written.result  # type: ignore[no-any-return]

    methods: dict[str, Callable[[], Wait | None]] = {
        "one memcpy": memcpy,
        "torch.save": lambda: torch.save(state, folder / "state.pt"),
        "DCP async_save": dcp_async_save,
        "roost: Checkpoints.save": lambda: checkpoints.save(parts, Progress(step=1)).wait,
    }
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in methods}
    for number in range(rounds + 1):
        shutil.rmtree(folder / "dcp", ignore_errors=True)
        for name, work in methods.items():
            began = time.perf_counter()
            wait = work()
            blocked = time.perf_counter() - began
            if wait is not None:
                wait()
            if number:  # the first round allocates the memory that the others reuse
                found[name][0].append(blocked)
                found[name][1].append(time.perf_counter() - began)
    return found


def measure_in_trainer(
    mb: int, rounds: int, every: int, folder: Path
) -> tuple[list[float], list[float], list[float]]:
    """Trains with saves inside a Trainer.

    Returns:
        Seconds for which each save blocked; seconds of the steps during which nothing was written; seconds of
        the steps during which a checkpoint was written.
    """
    runner, optimizer = new_state(mb)
    clock, data = Clock(), Inputs()
    loader = roost.Loader(data, plan=BatchPlan(len(data), BATCH_SIZE, seed=0))
    trainer = roost.Trainer(
        runner,
        {"train": loader},
        roost.Stepper(optimizer),
        hooks=[hooks.Save(every), clock],
        checkpoints=roost.Checkpoints(folder / "trainer"),
        until=every * (rounds + 2) - 1,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.fit(resume=False)
    took = np.diff(clock.ended)  # took[i]: of step i + 2
    plain = [took[i] for i in range(len(took)) if not clock.writes[i] and not clock.writes[i + 1]]
    while_writing = [took[i] for i in range(len(took)) if clock.writes[i] and clock.writes[i + 1]]
    blocked = []
    for number in range(2, rounds + 2):  # the first save allocates the memory
        at = number * every - 2
        near = statistics.median(took[at - 4 : at])  # the speed of a machine varies
        blocked.append(took[at] + took[at + 1] - 2 * near)
    return blocked, plain, while_writing


def measure_loads(mb: int, rounds: int, folder: Path) -> dict[str, list[float]]:
    runner, optimizer = new_state(mb)
    tensors = {f"model.{name}": one for name, one in runner.state_dict().items()}
    for number, state in enumerate(optimizer.state.values()):
        tensors |= {f"moment.{number}.{name}": one for name, one in state.items()}
    torch.save({"model": runner.state_dict(), "optimizer": optimizer.state_dict()}, folder / "load.pt")
    save_file(tensors, folder / "load.safetensors")
    parts: dict[str, Any] = {"model": ModuleState(runner), "optimizer": optimizer}
    target = folder / "load"
    roost.Checkpoints(target).save(parts, Progress(step=1)).wait()

    def torch_load() -> None:
        state = torch.load(folder / "load.pt", weights_only=True)
        runner.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    def safetensors_load() -> None:
        for name, one in load_file(folder / "load.safetensors").items():
            with torch.no_grad():
                tensors[name].copy_(one)

    methods: dict[str, Callable[[], Any]] = {
        "safetensors, no digest checked": safetensors_load,
        "torch.load, no digest checked": torch_load,
        "roost, every digest checked": lambda: roost.Checkpoints(target).load(parts),
    }
    found: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, work in methods.items():
            found[name].append(seconds(work))
    return found


def in_ms(values: list[float]) -> str:
    low, middle, high = (1000 * f(values) for f in (min, statistics.median, max))
    return f"{middle:,.0f} ({low:,.0f} … {high:,.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=int, default=16, help="steps between two saves")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    dist.init_process_group(
        "gloo", store=torch._C._distributed_c10d.HashStore(), rank=0, world_size=1
    )  # DCP needs a process group
    with tempfile.TemporaryDirectory() as temporary, contextlib.suppress(KeyboardInterrupt):
        folder = Path(temporary)
        found = measure_calls(arguments.mb, arguments.rounds, folder)
        blocked, plain, while_writing = measure_in_trainer(
            arguments.mb, arguments.rounds, arguments.every, folder
        )
        found["roost: in the Trainer"] = (blocked, [])
        limit = statistics.median(found["one memcpy"][0])
        print("| method | blocked, ms | × one memcpy | until durable, ms |\n|---|---|---|---|")
        for method, (stall, durable) in found.items():
            until = in_ms(durable) if durable and method != "one memcpy" else ""
            print(f"| {method} | {in_ms(stall)} | {statistics.median(stall) / limit:.2f} | {until} |")
        slower = statistics.median(while_writing) / statistics.median(plain)
        print(f"\nsteps: {in_ms(plain)} ms", end="")
        print(f"; while a checkpoint is written {in_ms(while_writing)} ms, {slower:.3f} times as long\n")
        print("| load | ms |\n|---|---|")
        for method, times in measure_loads(arguments.mb, arguments.rounds, folder).items():
            print(f"| {method} | {in_ms(times)} |")


if __name__ == "__main__":
    main()
