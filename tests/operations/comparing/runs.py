"""Packages to compare."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roost.operations.comparing.compared_run import RunContent, read_run
from roost.package.package import PackageFolder
from tests.operations.packages import ROWS, VALUES, package, project

STACK = {"torch": "2.13.0", "cuda": "13.0", "device": "cuda", "threads": 4}
ENVIRONMENT = {
    "roost": "0.1.0", "python": "3.12.1", "host": "one", "driver": "580.1", "seed": 0, "determinism": "off",
    "gpus": [{"name": "A100"}, {"name": "A100"}], "stack": STACK, "variables": {"OMP_NUM_THREADS": "4"},
    "packages": {"numpy": "2.1", "torch": "2.13.0"},
}  # fmt: skip


def make(
    root: Path, name: str, *, rows: Sequence[dict[str, float]] = ROWS, environment: Any = None, **values: Any
) -> PackageFolder:
    """A package of VALUES with some replaced, without checkpoints."""
    made = package(root, name, rows=rows, values={**VALUES, **values}, checkpoints=False)
    if environment is not None:
        (made.path / "environment.json").write_text(json.dumps(environment))
    return made


def optimizer(rate: float) -> dict[str, Any]:
    return {"main": {"class": "torch.optim.SGD", "lr": rate}}


def edit_project(root: Path, name: str, content: bytes | None) -> None:
    """Changes the project that later packages of this root copy; None removes the file."""
    source = root.parent / f"{root.name}-source"
    if not source.exists():
        project(source)
    path = source / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


def read(*made: PackageFolder) -> list[RunContent]:
    return [read_run(one.path) for one in made]
