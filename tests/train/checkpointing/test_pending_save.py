"""What `Checkpoints.save` gives: the state is copied, the files follow."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.base import durable
from roost.package.checkpoints import checkpoint
from roost.train.checkpointing.checkpoint_writer import TornCopy
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.progress import Progress

BIG = 3 << 20
"""Numbers: more than what is copied at once."""


class Tensors:
    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = list(tensors)

    def state_dict(self) -> dict[str, Any]:
        return {"tensors": self.tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tensors = state["tensors"]


class Gate:
    """Holds back the first write of a checkpoint's files."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, operation: str, path: str) -> None:
        if operation == "write" and "state_" in path:
            self.reached.set()
            assert self.open.wait(100)


@pytest.fixture
def gate() -> Iterator[Gate]:
    durable.fault = gate = Gate()
    yield gate
    gate.open.set()
    durable.fault = None


def read(path: Path) -> Any:
    return checkpoint.read(path)[1]["x"]["tensors"]


def test_what_changes_after_the_save_changes_nothing_of_it(tmp_path: Path, gate: Gate) -> None:
    small, big = torch.arange(4.0), torch.arange(float(BIG))
    checkpoints = Checkpoints(tmp_path)
    saved = checkpoints.save({"x": Tensors(small, big)}, Progress(step=1))
    small.zero_()
    big.zero_()
    assert gate.reached.wait(100) and not saved.is_done and checkpoints.newest is None
    assert checkpoint.ids(tmp_path) == []
    gate.open.set()
    found = read(saved.wait())
    assert saved.is_done and checkpoints.newest is not None
    assert torch.equal(found[0], torch.arange(4.0)) and torch.equal(found[1], torch.arange(float(BIG)))


def test_the_next_save_waits_for_the_one_before(tmp_path: Path, gate: Gate) -> None:
    checkpoints, value = Checkpoints(tmp_path), torch.zeros(BIG)
    first = checkpoints.save({"x": Tensors(value)}, Progress(step=1))
    assert gate.reached.wait(100)
    opens = threading.Timer(0.05, gate.open.set)
    opens.start()
    value += 1
    second = checkpoints.save({"x": Tensors(value)}, Progress(step=2))
    assert first.is_done, "its memory is used again"
    assert [float(read(one.wait())[0][-1]) for one in (first, second)] == [0.0, 1.0]
    assert [(info.id, info.parent) for info in checkpoint.read_manifests(tmp_path)] == [(0, None), (1, 0)]


def test_what_is_late_may_change_once_it_is_copied(tmp_path: Path) -> None:
    value = torch.zeros(BIG)
    saved = Checkpoints(tmp_path).save({"x": Tensors(value)}, Progress(step=1), defer=[value])
    saved.wait_until_copied()
    value += 1
    assert float(read(saved.wait())[0].sum()) == 0.0


def test_what_is_late_and_changes_before_is_not_written(tmp_path: Path) -> None:
    checkpoints, value = Checkpoints(tmp_path), torch.zeros(BIG)
    saved = checkpoints.save({"x": Tensors(value)}, Progress(step=1), defer=[value])
    value += 1
    with pytest.raises(TornCopy):
        saved.wait()
    assert list(tmp_path.iterdir()) == [] and checkpoints.newest is None
    assert float(read(checkpoints.save({"x": Tensors(value)}, Progress(step=2)).wait())[0][0]) == 1.0


def test_an_error_is_raised_by_wait_and_printed_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(operation: str, path: str) -> None:
        if operation == "write" and "state_" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    durable.fault = full
    try:
        checkpoints = Checkpoints(tmp_path)
        for prints_error in (True, False):
            saved = checkpoints.save({"x": Tensors()}, Progress(step=1), prints_error=prints_error)
            saved.wait_until_done()
            assert ("[Errno 28]" in capsys.readouterr().out) == prints_error
            with pytest.raises(OSError, match="No space left"):
                saved.wait()
    finally:
        durable.fault = None
    assert list(tmp_path.iterdir()) == [] and checkpoints.newest is None


def test_what_does_not_fit_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[str] = []
    monkeypatch.setattr(durable, "fault", lambda operation, path: began.append(operation))

    class Disk:
        f_blocks, f_bavail, f_frsize = 1000, 10, 4096

    monkeypatch.setattr(os, "statvfs", lambda folder: Disk)
    saved = Checkpoints(tmp_path).save({"x": Tensors(torch.zeros(BIG))}, Progress(step=1), prints_error=False)
    said = r"\b12,58\d,\d+\b.*\b65,536\b.*\b40,960\b"
    with pytest.raises(OSError, match=said):
        saved.wait()
    assert began == []


SAVES_AND_LEAVES = """
import sys, torch
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.progress import Progress
from tests.train.checkpointing.test_pending_save import Tensors
for place, is_late in (("copied", False), ("late", True)):
    late = torch.ones(3 << 20)
    parts = {"x": Tensors(late, torch.ones(20 << 20))}
    Checkpoints(f"{sys.argv[1]}/{place}").save(parts, Progress(step=1), defer=[late] if is_late else [])
sys.exit(7)
"""


def test_a_program_that_exits_waits_for_what_is_copied(tmp_path: Path) -> None:
    """A state that is still being copied may have been changed by then, undetected."""
    command = [sys.executable, "-c", SAVES_AND_LEAVES, str(tmp_path)]
    assert subprocess.run(command, timeout=100).returncode == 7
    assert checkpoint.ids(tmp_path / "late") == []
    assert checkpoint.verify(checkpoint.checkpoint_folder(tmp_path / "copied", 0)).size_bytes > 90_000_000
