"""The cost of recording 10 scalars per step on the training thread, compared with other methods.

    python bench/records.py [--rounds 9] [--steps 2000] [--folder DIR]

A step gives 10 scalars: tensors on the CPU, as a loss function returns them, or Python floats. roost takes
them with `Events.put` at each step, and writes a row (the means over the steps since the row before, and
their times; one line of JSON, one write) every n steps; a row survives the death of the process. The `log` of
`roost.init`, for loops of one's own, writes such a row at each call. The other
methods write a line per step and leave it in a buffer. Each round runs all methods in turn; figures are the
median over rounds of the time per step, and its ratio to the writer of JSON lines. Goal: at most 3 µs per
step.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import roost
from roost.package.records import RecordsWriter
from roost.train.events import Events
from roost.train.step.timing import Timing

NAMES = [f"metric_{n}" for n in range(10)]
Steps = list[dict[str, Any]]
Method = Callable[[Path, Steps], float]


def steps_of(count: int, *, tensors: bool) -> Steps:
    values = torch.rand(count, len(NAMES), generator=torch.Generator().manual_seed(0))
    if tensors:
        return [dict(zip(NAMES, row.unbind(), strict=True)) for row in values]
    return [dict(zip(NAMES, row, strict=True)) for row in values.tolist()]


def roost_rows(every: int) -> Method:
    def run(folder: Path, steps: Steps) -> float:
        events, writer = Events(), RecordsWriter(folder / "1.jsonl", session=1, start_step=0)
        timing = Timing()
        begin = time.perf_counter()
        for step, values in enumerate(steps, 1):
            events.put(values, 16.0)
            if step % every == 0:
                writer.row(step, 0, {**events.row(), **timing.row(step, step * 16)})
        seconds = time.perf_counter() - begin
        writer.close()
        return seconds

    return run


def script_log(folder: Path, steps: Steps) -> float:
    with roost.init(root=folder) as run:
        begin = time.perf_counter()
        for values in steps:
            run.log(values)
        return time.perf_counter() - begin


def put_alone(folder: Path, steps: Steps) -> float:
    events = Events()
    begin = time.perf_counter()
    for values in steps:
        events.put(values, 16.0)
    return time.perf_counter() - begin


def writer_alone(folder: Path, steps: Steps) -> float:
    writer = RecordsWriter(folder / "1.jsonl", session=1, start_step=0)
    begin = time.perf_counter()
    for step, values in enumerate(steps, 1):
        writer.row(step, 0, values)
    seconds = time.perf_counter() - begin
    writer.close()
    return seconds


def list_append(folder: Path, steps: Steps) -> float:
    kept: list[Any] = []
    begin = time.perf_counter()
    for step, values in enumerate(steps, 1):
        kept.append((step, values))
    return time.perf_counter() - begin


def csv_lines(folder: Path, steps: Steps) -> float:
    with (folder / "a.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        begin = time.perf_counter()
        for step, values in enumerate(steps, 1):
            writer.writerow([step, *map(float, values.values())])
        return time.perf_counter() - begin


def json_lines(folder: Path, steps: Steps) -> float:
    with (folder / "a.jsonl").open("w") as file:
        begin = time.perf_counter()
        for step, values in enumerate(steps, 1):
            row = {name: float(value) for name, value in values.items()}
            file.write(json.dumps({"step": step, **row}) + "\n")
        return time.perf_counter() - begin


def tensorboard() -> Method | None:
    try:
        kind = importlib.import_module("torch.utils.tensorboard").SummaryWriter
    except ImportError:
        return None

    def run(folder: Path, steps: Steps) -> float:
        writer = kind(folder)
        begin = time.perf_counter()
        for step, values in enumerate(steps, 1):
            for name, value in values.items():
                writer.add_scalar(name, value, step)
        seconds = time.perf_counter() - begin
        writer.close()
        return seconds

    return run


def methods() -> dict[str, tuple[Method, bool]]:
    """Returns each method, and whether its scalars are tensors (else floats)."""
    found: dict[str, tuple[Method, bool]] = {}
    for tensors, kind in ((True, "tensors"), (False, "floats")):
        found[f"roost, a row every 100 steps, {kind}"] = roost_rows(100), tensors
        found[f"roost, a row every 10 steps, {kind}"] = roost_rows(10), tensors
        found[f"roost, a row every step, {kind}"] = roost_rows(1), tensors
        found[f"roost, Events.put alone, {kind}"] = put_alone, tensors
        found[f"roost.init, log at every step, {kind}"] = script_log, tensors
    found["roost, RecordsWriter.row alone, floats"] = writer_alone, False
    found["list.append, floats (nothing is written)"] = list_append, False
    found["csv.writer, floats"] = csv_lines, False
    found["json.dumps lines, floats"] = json_lines, False
    found["csv.writer, tensors"] = csv_lines, True
    found["json.dumps lines, tensors"] = json_lines, True
    if (board := tensorboard()) is not None:
        found["TensorBoard, floats"] = board, False
    else:
        print("TensorBoard is not installed: left out\n")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder when left out")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    steps = {tensors: steps_of(arguments.steps, tensors=tensors) for tensors in (True, False)}
    table = methods()
    times: dict[str, list[float]] = {name: [] for name in table}
    for round_ in range(-1, arguments.rounds):  # the first one warms up
        for name, (method, tensors) in table.items():
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                seconds = method(Path(folder), steps[tensors])
            if round_ >= 0:
                times[name].append(seconds / arguments.steps * 1e6)
    medians = {name: statistics.median(found) for name, found in times.items()}
    print(f"{'10 scalars per step':44}  µs per step   min – max        × JSON lines of floats")
    for name, median in sorted(medians.items(), key=lambda item: item[1]):
        spread = f"{min(times[name]):.2f} – {max(times[name]):.2f}"
        print(f"{name:44}  {median:9.2f}   {spread:15}  {median / medians['json.dumps lines, floats']:6.2f}")
    goal = medians["roost, a row every 100 steps, tensors"]
    print(f"\ngoal: at most 3 µs per step; a row every 100 steps: {goal:.2f} µs")


if __name__ == "__main__":
    main()
