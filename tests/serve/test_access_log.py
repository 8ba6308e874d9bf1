from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.serve import access_log
from roost.serve.access_log import AccessLog, rotated_path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


@pytest.fixture
def as_stdout(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file, to which two descriptors lead that stand for those of a process of its own."""
    fds = [os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) for _ in range(2)]
    for name, fd in zip(("_STDOUT_FD", "_STDERR_FD"), fds, strict=True):
        monkeypatch.setattr(access_log, name, fd)
    monkeypatch.setattr(access_log, "MAX_BYTES", 200)
    yield path
    for fd in fds:
        os.close(fd)


def test_the_log_is_rotated_and_one_old_file_is_kept(as_stdout: Path) -> None:
    log = AccessLog(as_stdout)
    for number in range(20):
        log.write_request("GET", f"/{number:02}", 200, 0.001)
    files = [rotated_path(as_stdout), as_stdout]
    lines = [line for file in files for line in file.read_text().splitlines()]
    found = [line.split()[3] for line in lines]
    assert found == [f"/{number:02}" for number in range(20)][-len(found) :] and 5 < len(found) < 20
    assert sorted(one.name for one in as_stdout.parent.iterdir()) == ["server.log", "server.log.1"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert all(file.stat().st_size < 300 for file in files)
    os.write(access_log._STDERR_FD, b"a trouble\n")
    assert as_stdout.read_text().endswith("a trouble\n"), "errors follow"


def test_a_stdout_that_is_not_the_log_is_not_rotated(as_stdout: Path, tmp_path: Path) -> None:
    log = AccessLog(tmp_path / "other")
    (tmp_path / "other").write_text("mine")
    for _ in range(20):
        log.write_request("GET", "/", 200, 0.001)
    assert (tmp_path / "other").read_text() == "mine" and len(as_stdout.read_text().splitlines()) == 20
    assert len(list(tmp_path.iterdir())) == 2


def test_a_log_that_cannot_be_written_does_not_matter(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    AccessLog(path).write_request("G E T", "/x", 200, 0.001)
    assert capfd.readouterr().out.endswith(" ? /x 200 1.0 ms\n")
