"""On a card a run that was cut has the bits of one that was not: strict, in processes of their own."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.device import DEVICE
from tests.gpu.legs import CELLS, Cell

pytestmark = [pytest.mark.needs_gpu, pytest.mark.timeout(500)]
Legs = Callable[[str], tuple[Any, Any]]
COMPILED = [
    cell for cell in CELLS if cell.model in ("dense", "attention") and cell.optimizer == "AdamW fused"
]


def leg(folder: Path, name: str, mode: str, only: str) -> Any:
    result = folder.with_name(f"{folder.name}-{name}.json")
    command = [sys.executable, "-m", "tests.gpu.legs", str(folder), name, str(result)]
    done = subprocess.run(
        [*command, "--mode", mode, "--only", only], capture_output=True, text=True, timeout=450
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(result.read_text())


def both(root: Path, mode: str, only: str) -> tuple[Any, Any]:
    """The results of the whole runs, and of those in two legs; the two at once."""
    with ThreadPoolExecutor() as pool:
        whole = pool.submit(leg, root / "whole", "whole", mode, only)
        leg(root / "cut", "first", mode, only)
        return whole.result(), leg(root / "cut", "second", mode, only)


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Legs:
    """The results by model: the first test of each runs its legs."""

    # A failure is kept, too: legs that fail take as long as those that do not.
    @functools.cache
    def of(model: str) -> Future[tuple[Any, Any]]:
        with ThreadPoolExecutor() as pool:
            return pool.submit(both, tmp_path_factory.mktemp("legs"), "eager", f"{model}, ")

    return lambda model: of(model).result()


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_two_legs_are_the_whole_run(cell: Cell, eager: Legs) -> None:
    whole, cut = (one[cell.name] for one in eager(cell.model))
    if cell.model == "lstm with dropout" and DEVICE == "cuda":
        assert any("cuDNN" in reason for reason in whole["inexact"]), "it is said, not hidden"
        return
    assert whole["inexact"] == []
    assert cut == whole


@pytest.mark.parametrize("cell", COMPILED, ids=lambda cell: cell.name)
def test_compiled_steps_are_the_same_in_another_process(cell: Cell, tmp_path: Path) -> None:
    whole, cut = both(tmp_path, "compile", cell.name)
    assert cut == whole
