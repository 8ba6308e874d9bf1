from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.train.mirrors.recorded import folded, session, table
from tests.waiting import wait_for


@contextmanager
def process(package: Path, kind: str = "csv") -> Iterator[subprocess.Popen[bytes]]:
    """A mirror's process, as the hook starts it."""
    task = {"package": str(package), "kind": kind, "settings": {}, "identity": {"name": "x"}}
    with tempfile.TemporaryFile() as file:
        file.write(msgspec.json.encode(task))
        file.seek(0)
        fd = file.fileno()
        command = [sys.executable, "-P", "-m", "roost.train.mirrors", str(fd)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, pass_fds=[fd]) as started:
            yield started
            started.kill()


def mirrored(package: Path) -> int:
    path = package / "metrics.csv"
    return len(table(path)) if path.exists() else 0


def test_it_follows_until_the_end_of_the_session(tmp_path: Path) -> None:
    writer = session(tmp_path, 1, 0, [1, 2])
    with process(tmp_path) as started:
        wait_for(lambda: mirrored(tmp_path) == 2)
        writer.row(3, 0, {"train/loss": 1.0})
        wait_for(lambda: mirrored(tmp_path) == 3)
        writer.row(4, 0, {"train/loss": 1.0})
        assert started.communicate(b"finished\n", timeout=100) == (b"", None)
        assert started.returncode == 0
    assert table(tmp_path / "metrics.csv") == folded(tmp_path)


def test_it_ends_with_the_training_that_was_killed(tmp_path: Path) -> None:
    session(tmp_path, 1, 0, [1])
    with process(tmp_path) as started:
        assert started.communicate(timeout=100)[0] == b"" and started.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_group_is_the_training_s_to_answer(tmp_path: Path, number: int) -> None:
    writer = session(tmp_path, 1, 0, [1])
    with process(tmp_path) as started:
        wait_for(lambda: mirrored(tmp_path) == 1)
        os.kill(started.pid, number)
        writer.row(2, 0, {"train/loss": 1.0})
        started.communicate(b"stopped\n", timeout=100)
        assert started.returncode == 0
    assert mirrored(tmp_path) == 2


def test_the_end_may_come_before_it_has_started(tmp_path: Path) -> None:
    """A training shorter than the start of a process."""
    session(tmp_path, 1, 0, [1])
    with process(tmp_path) as started:
        assert started.communicate(b"finished\n", timeout=100)[0] == b"" and started.returncode == 0
    assert mirrored(tmp_path) == 1
    with process(tmp_path) as started:
        assert started.stdin is not None
        started.stdin.write(b"finished\n")
        started.stdin.flush()  # and left open
        assert started.wait(100) == 0
