"""The cost of an evaluation per sample, beside a bare loop and Hugging Face `evaluate`.

    python bench/evaluate.py [--samples 1000000] [--batch 256] [--width 1024] [--rounds 1] [--only NAME]

A test set of random vectors goes through a small network; `test` returns for each sample the loss, whether it
is correct, and the predicted class, and each sample has a group of 50 labels.

- bare loop: slices of the same tensors, the same function without gradients, all results kept in memory and
  saved as one .npz at the end. No ids, no groups, nothing durable before the end.
- roost: the loop of a cell with its loader, rows written durably in parts as it goes; then merged into
  rows.parquet, summarized with bootstrap intervals, groups and worst cases, and reported as HTML and
  Markdown.
- evaluate: Hugging Face's `Metric.add_batch` for loss, correctness and class in place of keeping the results,
  then `compute` of two means. Only where it is installed: `pip install evaluate`.

Each method runs in a process of its own, on one thread. The figures are microseconds per sample and the ratio
to the bare loop, by the clock and by the time of the CPU; for roost also the seconds of merging, of the
summary and of the report, and how much the memory of the process grew between the first tenth of the loop and
its end. Goals: at most 1.10; a report, with its summary, in at most 10 s; no growth.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

INPUTS, CLASSES, LABELS = 64, 10, 50


class Network(nn.Module):
    """A small network, and what it is tested for."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
        )

    def test(self, batch: Any) -> Mapping[str, Tensor]:
        """Returns the results of each sample."""
        scores = self.layers(batch[0])
        predicted = scores.argmax(1)
        return {
            "loss": nn.functional.cross_entropy(scores, batch[1], reduction="none"),
            "correct": predicted == batch[1],
            "predicted": predicted,
        }


def samples(count: int) -> tuple[Tensor, Tensor]:
    """Returns inputs and classes."""
    draws = torch.Generator().manual_seed(1)
    return torch.randn(count, INPUTS, generator=draws), torch.randint(CLASSES, (count,), generator=draws)


def bare(folder: Path, count: int, batch: int, width: int) -> dict[str, float]:
    """Runs the bare loop."""
    x, y = samples(count)
    network = Network(width).eval()
    began = _now()
    kept: dict[str, list[np.ndarray[Any, Any]]] = {}
    with torch.no_grad():
        for first in range(0, count, batch):
            for name, value in network.test((x[first : first + batch], y[first : first + batch])).items():
                kept.setdefault(name, []).append(value.numpy())
    np.savez(folder / "results.npz", **{name: np.concatenate(parts) for name, parts in kept.items()})
    return _since(began)


def huggingface(folder: Path, count: int, batch: int, width: int) -> dict[str, float]:
    """Runs the loop with `evaluate`."""
    import datasets
    import evaluate

    class Means(evaluate.Metric):  # type: ignore[misc, name-defined]
        def _info(self) -> Any:
            features = {
                "loss": datasets.Value("float32"),
                "correct": datasets.Value("bool"),
                "predicted": datasets.Value("int64"),
            }
            return evaluate.MetricInfo(
                description="", citation="", inputs_description="", features=datasets.Features(features)
            )

        def _compute(self, loss: Any, correct: Any, predicted: Any) -> dict[str, float]:
            return {"loss": float(np.mean(loss)), "correct": float(np.mean(correct))}

    x, y = samples(count)
    network, metric = Network(width).eval(), Means(cache_dir=str(folder))
    began = _now()
    with torch.no_grad():
        for first in range(0, count, batch):
            found = network.test((x[first : first + batch], y[first : first + batch]))
            metric.add_batch(**{name: value.numpy() for name, value in found.items()})
    times, began = _since(began), _now()
    metric.compute()
    return {**times, "summary": _since(began)["loop"]}


def roost(folder: Path, count: int, batch: int, width: int) -> dict[str, float]:
    """Runs a cell of an evaluation as its worker does."""
    import msgspec
    from torch.utils.data import TensorDataset

    from roost.config.settings import Settings
    from roost.evaluation import evaluated_set
    from roost.evaluation.cell_run import CellLoop, Share
    from roost.evaluation.reports.report_files import write_reports
    from roost.package.results.evaluations import evaluation_rows, row_files
    from roost.project.contract import Data

    x, y = samples(count)
    data = TensorDataset(x, y)
    data.groups = {"label": [f"label {place % LABELS}" for place in range(count)]}  # type: ignore[attr-defined]
    body = {
        "runner": "bench.py:Network",
        "dataset": "bench.py:Data",
        "data": {"batch_size": batch, "test": {"batch_size": batch}, "num_workers": 0},
    }
    settings = msgspec.convert(body, Settings, strict=False)
    network = Network(width).eval()
    root = folder / "evaluations" / "bench"
    cell = root / "cell"
    cell.mkdir(parents=True)
    names = {"variant": "default", "checkpoint": "best", "dataset": "test"}
    entry = {
        **names,
        "identity": dict.fromkeys(("weights", "variant", "code", "data"), ""),
        "samples": count,
        "batches": [],
        "groups": [],
        "arguments": {},
        "checkpoint_ids": [],
        "seed": 0,
        "format": row_files.installed_format(),
    }
    (cell / "cell.json").write_text(json.dumps(entry))
    listed = {**entry, "folder": "cell", "batches": 0}
    grid = {"checkpoints": [], "variants": {}, "cells": [listed], "threads": 1, "device": "cpu"}
    (root / "cells.json").write_text(json.dumps(grid))
    evaluated = evaluated_set.open_set(Data(train=data, test=data), settings, "test", device="cpu")
    memory: list[int] = []

    calls = itertools.count()

    def advance(number: int) -> None:
        if next(calls) % 64 == 0:
            memory.append(_resident())

    began = _now()
    CellLoop(
        cell=cell,
        evaluated=evaluated,
        test=network.test,
        to_device=lambda value: value,
        forward=torch.no_grad,
        share=Share(rank=0, world_size=1, session=1),
        finished=set(),
        seed=0,
        skips_errors=False,
        advance=advance,
    ).run()
    times = _since(began)
    times["memory"] = (memory[-1] - memory[len(memory) // 10]) / 2**20
    steps = {
        "merge": lambda: evaluation_rows.merge(cell, evaluated.ids),
        "summary": lambda: _summarize(cell),
        "report": lambda: write_reports(root),
    }
    for name, step in steps.items():
        began = _now()
        step()
        times[name] = _since(began)["loop"]
    return times


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(began: tuple[float, float]) -> dict[str, float]:
    """Returns the seconds, and those of the CPU, since `_now`."""
    return {"loop": time.perf_counter() - began[0], "cpu": time.process_time() - began[1]}


def _summarize(cell: Path) -> None:
    from roost.evaluation.summaries import summary
    from roost.package.results.evaluations import evaluation_rows

    rows = evaluation_rows.read_rows(cell, summary.needed_columns(cell))
    summary.write(cell, summary.summarize(rows, identity="bench"))


def _resident() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize()


METHODS = {"bare": bare, "roost": roost, "evaluate": huggingface}


def main() -> None:
    """Runs all methods and prints their table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=METHODS)
    options = parser.parse_args()
    sys.path.pop(0)  # this folder, where a module is called as Hugging Face's
    if options.only is not None:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            times = METHODS[options.only](Path(folder), options.samples, options.batch, options.width)
        times["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(times))
        return
    names = [
        name for name in METHODS if name != "evaluate" or importlib.util.find_spec("evaluate") is not None
    ]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            arguments = ["--samples", options.samples, "--batch", options.batch, "--width", options.width]
            command = [sys.executable, __file__, "--only", name, *map(str, arguments)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    base = {key: statistics.median(one[key] for one in found["bare"]) for key in ("loop", "cpu")}
    print(f"{options.samples:,} samples, batches of {options.batch}, width {options.width}, one thread")
    seconds = ("merge", "summary", "report")
    heads = ["", "µs/sample", "ratio", "CPU µs", "ratio", *(f"{name} s" for name in seconds)]
    heads += ["growth MB", "peak MB"]
    print(" ".join(f"{head:>10}" for head in heads))
    for name, rounds in found.items():
        middle = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        cells = [name]
        for key in ("loop", "cpu"):
            cells += [f"{middle[key] / options.samples * 1e6:.2f}", f"{middle[key] / base[key]:.3f}"]
        cells += [f"{middle[key]:.2f}" if key in middle else "" for key in (*seconds, "memory")]
        print(" ".join(f"{cell:>10}" for cell in [*cells, f"{middle['peak']:.0f}"]))


if __name__ == "__main__":
    main()
