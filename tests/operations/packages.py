"""Packages and projects for tests, made without torch and without a run."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roost.base.system import process_identity
from roost.operations.lifecycle.new_project import new_project
from roost.package import snapshot
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.live_progress import ProgressFile
from roost.package.package import PackageFolder
from roost.package.records import RecordsWriter

VALUES: dict[str, Any] = {
    "runner": "Model/Runner.py:Runner",
    "dataset": "Dataset/Dataset.py:Dataset",
    "max_epochs": 3,
    "model": {"features": 8},
    "checkpoint": {"best": [{"monitor": "valid/loss", "mode": "min"}]},
    "optimizers": {"main": {"class": "torch.optim.SGD", "lr": 0.1}},
}
"""Settings of a package that nobody runs."""

UNFINISHED: dict[str, Any] = {**VALUES, "max_epochs": 12}
"""Of a package that was stopped, or failed: its newest checkpoint is not at its goal."""

ROWS = (
    {"step": 10, "epoch": 1, "train/loss": 2.0, "valid/loss": 1.5, "lr": 0.1},
    {"step": 20, "epoch": 2, "train/loss": 1.0, "valid/loss": 0.5, "lr": 0.1},
    {"step": 30, "epoch": 3, "train/loss": 0.5, "valid/loss": 0.75, "lr": 0.1, "test/loss": 0.7},
)

TIMES = {
    **{f"perf/{name}_ms": 1.0 for name in ("data", "to_device", "forward", "backward", "optimizer", "other")},
    "perf/samples_per_second": 1000.0,
    "perf/host_mb": 400.0,
}
"""What a row also has: a step took 6 ms."""


def project(folder: Path, **settings: str) -> Path:
    """The clean template, each given setting replaced or added at the top; gives its config."""
    new_project(folder, template="clean")
    config = folder / "config.yaml"
    lines = [line for line in config.read_text().splitlines() if line.partition(":")[0] not in settings]
    config.write_text("\n".join([*lines, *(f"{key}: {value}" for key, value in settings.items())]) + "\n")
    return config


def package(
    root: Path,
    name: str = "one",
    *,
    state: str = "succeeded",
    rows: Sequence[dict[str, float]] = ROWS,
    checkpoints: bool = True,
    values: dict[str, Any] | None = None,
    **record: Any,
) -> PackageFolder:
    """A package with one session, which ended as ``state`` says ("new": without one)."""
    source = root.parent / f"{root.name}-source"
    if not source.exists():
        project(source)
    made = PackageFolder.create(
        root,
        name=name,
        values=values or (VALUES if state == "succeeded" else UNFINISHED),
        request={"description": "a test", "project": str(source)},
        selection=snapshot.select(source),
    )
    if state != "new":
        session(made, state, **record)
        record_rows(made, 1, 0, rows)
        publish(made, step=30, total_steps=30)
    if checkpoints and state != "new":
        for id, row in enumerate(rows):
            add_checkpoint(made, id, row)
        best = min(range(len(rows)), key=lambda id: rows[id]["valid/loss"])
        made.write_derived({"fast": [1, 2], "slow": [], "held": [], "best": [best]}, [])
    return made


def session(made: PackageFolder, state: str, **record: Any) -> int:
    """Adds a session as its supervisor would have recorded it: by this very process."""
    number = made.new_session({"kind": "train", "overrides": [], "device": "auto", "checkpoint": None})
    body = {
        "session": number,
        "state": state,
        "host": socket.gethostname(),
        "boot_id": process_identity.boot_id(),
        "pid": os.getpid(),
        "start_ticks": process_identity.start_ticks(os.getpid()),
        "started": 1_800_000_000.0,
        **({"ended": 1_800_000_060.0, "seconds": 60.0, "exit_code": 0} if state != "running" else {}),
        **record,
    }
    if state == "running" and not record.keys() & {"host", "boot_id", "pid", "start_ticks"}:
        made.lock()  # until this process ends
    file = made.path / "sessions" / f"{number}.json"
    staging = file.with_name(".staging")
    staging.write_text(json.dumps(body))
    staging.rename(file)
    return number


def record_rows(made: PackageFolder, number: int, start_step: int, rows: Sequence[dict[str, float]]) -> None:
    """Writes one session's records."""
    writer = RecordsWriter(made.path / "records" / f"{number}.jsonl", session=number, start_step=start_step)
    for row in rows:
        values = {key: value for key, value in row.items() if key not in ("step", "epoch")}
        writer.row(int(row["step"]), int(row["epoch"]), values)
    writer.close()


def add_checkpoint(made: PackageFolder, id: int, row: dict[str, float]) -> None:
    """A small checkpoint, the child of the one before."""
    metrics = {name: value for name, value in row.items() if name.startswith("valid/")}
    line = [(0, id)]
    info = Manifest(
        id=id, step=int(row["step"]), epoch=int(row["epoch"]), batch=0, line=line, session=1, metrics=metrics
    )
    checkpoint.write(made.checkpoints, {"model": {"weight": [1.0, 2.0]}}, info)


def publish(made: PackageFolder, *, step: int, total_steps: int) -> None:
    """Puts a progress record into the package."""
    board = ProgressFile(made.progress)
    board.publish(step, step // 10, 0, 1, total_steps, 10, step * 4, 1.0, 100.0, step / total_steps)
