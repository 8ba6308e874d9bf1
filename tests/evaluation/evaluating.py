"""Evaluations that run in this process, one rank after the other."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any

from roost.operations.evaluating.evaluation_request import (
    EvaluateRequest,
    check_request,
    find_folder,
    make_folder,
)
from roost.package.package import PackageFolder
from roost.package.session_folder import SessionFolder
from roost.project.package_context import package_code
from roost.worker.results import evaluate_task

_OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE")

VARIANTS = """
grid: {temperature: [1.0, 2.0, 0.5], noise: [0, 1]}
"""


def requested(package: PackageFolder, name: str | None = "one", **request: Any) -> SessionFolder:
    """The session folder of a request, a new one unless it was asked before."""
    checked = check_request(EvaluateRequest(package=package.path, name=name, **request))
    return find_folder(checked, name) or make_folder(checked, name)


def evaluate(package: PackageFolder, name: str | None = "one", *, ranks: int = 1, **request: Any) -> Path:
    """Evaluates; gives the folder of the evaluation. What the ranks print is dropped."""
    folder = requested(package, name, **request)
    run_session(package, folder, ranks=ranks)
    return folder.path


def run_session(package: PackageFolder, folder: SessionFolder, *, ranks: int = 1) -> str:
    """Runs a session of an evaluation; gives what its ranks have printed."""
    number = folder.new_session({"kind": "evaluate", "device": "cpu"})
    printed = io.StringIO()
    for rank in range(ranks):
        with _as_rank(rank, ranks), package_code(package), contextlib.redirect_stdout(printed):
            assert evaluate_task.evaluate(package, folder.path, number) == "finished"
    return printed.getvalue()


@contextlib.contextmanager
def _as_rank(rank: int, ranks: int) -> Any:
    before = {name: os.environ.get(name) for name in _OF_A_RANK}
    if ranks > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
