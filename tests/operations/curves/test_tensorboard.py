from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound, RoostError
from roost.base.system import process_identity
from roost.operations.curves.tensorboard import tensorboard
from tests.messages import Messages
from tests.operations.packages import ROWS, package, record_rows, session
from tests.train.mirrors.recorded import show_all
from tests.waiting import wait_for

ROOST = str(Path(sys.executable).parent / "roost")
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    monkeypatch.undo()
    tempfile.tempdir = None


def asked(url: str, path: str) -> Any:
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/data/{path}", timeout=100) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError:
        return None  # not loaded yet


def curve(url: str, run: str, tag: str) -> list[tuple[int, float]]:
    run, tag = (text.replace(" ", "%20").replace("/", "%2F") for text in (run, tag))
    found = asked(url, f"plugin/scalars/scalars?run={run}&tag={tag}")
    return [(step, value) for _, step, value in found or []]


def test_any_packages_and_what_they_record_meanwhile(tmp_path: Path, temporary: Path) -> None:
    one, other = package(tmp_path / "a", "one"), package(tmp_path / "b", "one", state="stopped")
    show_all(one.path, 20)
    before = set(one.path.rglob("*"))
    with closing(tensorboard([one.path, other.path], port=0)) as events:  # type: ignore[type-var]
        serving = next(events)
        assert serving.url.startswith("http://127.0.0.1:")
        assert serving.runs == {"one": str(one.path), "one (2)": str(other.path)}
        wait_for(lambda: set(asked(serving.url, "runs") or []) == set(serving.runs))
        expected = [(int(row["step"]), row["train/loss"]) for row in ROWS]
        wait_for(lambda: curve(serving.url, "one", "train/loss") == expected)
        session(other, "running")
        record_rows(other, 2, 20, [{"step": 30, "epoch": 3, "train/loss": 8.0}])
        _follow(other.path, events, serving.url, [*expected[:2], (30, 8.0)])
    assert set(one.path.rglob("*")) == before, "nothing is written into a package"
    assert list(temporary.iterdir()) == []


def _follow(path: Path, events: Any, url: str, expected: list[tuple[int, float]]) -> None:
    """The generator does its work in `next`, which a thread of this test takes over."""
    import threading

    def turn() -> None:
        with pytest.raises(RoostError, match="-9"):
            next(events)

    worker = threading.Thread(target=turn)
    worker.start()
    try:
        wait_for(lambda: curve(url, "one (2)", "train/loss") == expected)
    finally:
        port = int(url.rstrip("/").rpartition(":")[2])
        os.kill(_listener(port), signal.SIGKILL)
        worker.join(100)


def _listener(port: int) -> int:
    """The pid of the TensorBoard below us that listens there."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            stat = process_identity.read_stat(int(entry.name))
            if stat is not None and stat.parent_pid == os.getpid():
                command = (entry / "cmdline").read_bytes()
                if b"tensorboard.main" in command:
                    return int(entry.name)
    raise AssertionError(f"nobody listens on {port}")


def test_a_port_that_is_taken_is_one_error(tmp_path: Path, temporary: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RoostError, match="already in use") as found:
            next(iter(tensorboard([made.path], port=taken.getsockname()[1])))
    assert "--port" in str(found.value.fix) and list(temporary.iterdir()) == []
    messages.check(found.value.fix)


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        next(iter(tensorboard([tmp_path])))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_command_ends_with_all_that_it_started(tmp_path: Path, temporary: Path, number: int) -> None:
    made = package(tmp_path / "runs")
    command = [ROOST, "tensorboard", str(made.path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        url = started.stdout.readline().strip()
        port = int(url.rstrip("/").rpartition(":")[2])
        started.send_signal(number)
        started.wait(100)
    assert started.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    wait_for(lambda: _is_free(port))
    assert number == signal.SIGKILL or list(temporary.iterdir()) == []


def _is_free(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) != 0
