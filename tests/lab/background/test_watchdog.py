"""What is killed is started anew; what ends is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.lab.background import watchdog
from tests import processes
from tests.waiting import wait_for

TELLS = """
echo $$ >> pids
echo ready > /dev/fd/$1
echo loud >&2
exec sleep 600
"""


class Kept:
    """A shell script, and who keeps it.

    Args:
        folder: Where it works.
        script: Its first argument is the number of the descriptor by which it tells that it is ready.
        changes: What is other in the keeper: of Python.
        is_awaited: Whether somebody waits until it is ready.
    """

    def __init__(
        self, folder: Path, script: str, changes: str = "_PAUSE_SECONDS = 0.05", *, is_awaited: bool = True
    ) -> None:
        self._pids = folder / "pids"
        read_fd, self.its_fd = os.pipe()
        self.read_fd: int | None = read_fd
        self.log = folder / "log"
        path = Path(watchdog.__file__)
        code = f"import sys; sys.path.insert(0, {str(path.parent)!r}); import watchdog; watchdog.{changes}\n"
        command = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"{code}sys.exit(watchdog.main())",
            "/bin/sh",
            "-c",
            script,
            "sh",
        ]
        if not is_awaited:
            self.close()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, str(self.its_fd)], stdout=log, stderr=log, cwd=folder, pass_fds=[self.its_fd],
                start_new_session=True,
            )  # fmt: skip
        os.close(self.its_fd)

    def pids(self) -> list[int]:
        return [int(line) for line in self._pids.read_text().split()] if self._pids.exists() else []

    def leave(self) -> None:
        """As who has heard that it is ready."""
        assert self.read_fd is not None
        assert os.read(self.read_fd, 100) == b"ready\n"
        self.close()

    def close(self) -> None:
        if self.read_fd is not None:
            os.close(self.read_fd)
            self.read_fd = None


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    one = Kept(tmp_path, TELLS)
    wait_for(one.pids)
    yield one
    one.close()
    processes.kill_all_in(tmp_path)
    one.process.wait()


def test_what_is_killed_is_started_anew(kept: Kept, tmp_path: Path) -> None:
    kept.leave()
    for number, signum in enumerate((signal.SIGKILL, signal.SIGSEGV, 40), start=2):
        os.kill(kept.pids()[-1], signum)
        wait_for(lambda number=number: len(kept.pids()) == number)
    wait_for(lambda: kept.log.read_text().count("loud") == 4)
    said = [line for line in kept.log.read_text().splitlines() if line != "loud"]
    for line, name in zip(said, ("SIGKILL", "SIGSEGV", "signal 40"), strict=True):
        assert name in line
    kept.process.terminate()
    assert kept.process.wait() == -signal.SIGTERM
    assert processes.is_gone(kept.pids()[-1]) and len(kept.pids()) == 4


def test_while_somebody_waits_for_it_he_is_left_to_it(kept: Kept) -> None:
    os.kill(kept.pids()[0], signal.SIGKILL)
    assert kept.process.wait() == -signal.SIGKILL
    assert len(kept.pids()) == 1


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_who_is_asked_to_end_is_not_started_again(kept: Kept, signum: signal.Signals) -> None:
    kept.leave()
    os.kill(kept.pids()[0], signum)
    assert kept.process.wait() == -signum
    assert len(kept.pids()) == 1


def test_it_ends_as_what_it_keeps(tmp_path: Path) -> None:
    one = Kept(tmp_path, "exit 5")
    one.close()
    assert one.process.wait() == 5
    assert one.log.read_text() == ""


def test_without_a_folder_nothing_is_started(kept: Kept) -> None:
    kept.leave()
    kept.log.unlink()
    os.kill(kept.pids()[0], signal.SIGKILL)
    assert kept.process.wait() == 0
    assert len(kept.pids()) == 1


@pytest.mark.parametrize(("code", "starts"), [(1, 4), (5, 2)])
def test_only_what_was_refused_is_not_tried_again(tmp_path: Path, code: int, starts: int) -> None:
    dies = f"echo $$ >> pids; case $(wc -l < pids) in 1) kill -9 $$;; 4) exit 0;; esac; exit {code}"
    one = Kept(tmp_path, dies, is_awaited=False)
    assert one.process.wait() == (0 if code == 1 else code)
    assert len(one.pids()) == starts
    assert len([line for line in one.log.read_text().splitlines() if "SIG" not in line]) == starts - 2


def test_the_first_one_that_fails_is_not_tried_again(tmp_path: Path) -> None:
    one = Kept(tmp_path, "echo $$ >> pids; exit 1", is_awaited=False)
    assert one.process.wait(100) == 1 and len(one.pids()) == 1


def test_what_dies_at_once_is_started_less_and_less_often(tmp_path: Path) -> None:
    dies = "echo $$ >> pids; [ $(wc -l < pids) = 10 ] || kill -9 $$"
    notes = "Watchdog._pause = lambda self, seconds: print(seconds, flush=True)"
    one = Kept(tmp_path, dies, notes, is_awaited=False)
    assert one.process.wait() == 0
    pauses = [float(line) for line in one.log.read_text().splitlines() if "SIGKILL" not in line]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]


def test_who_pauses_ends_when_he_is_told(tmp_path: Path) -> None:
    one = Kept(tmp_path, "echo $$ >> pids; kill -9 $$", "_PAUSE_SECONDS = 600.0", is_awaited=False)
    wait_for(lambda: "SIGKILL" in one.log.read_text())
    one.process.terminate()
    assert one.process.wait(100) == 0 and len(one.pids()) == 1


@pytest.mark.parametrize(("error", "starts"), [("EAGAIN", 2), ("ENOMEM", 2), ("ENOENT", 1)])
def test_where_no_process_can_be_started_it_tries_again(tmp_path: Path, error: str, starts: int) -> None:
    """Nor can the kernel start one when it has just killed one for want of memory."""
    fails = f"""_PAUSE_SECONDS = 0.05
import errno, os
spawn, started = os.posix_spawn, []
def posix_spawn(*arguments, **more):
    started.append(1)
    if len(started) == 2:
        raise OSError(errno.{error}, "no room")
    return spawn(*arguments, **more)
os.posix_spawn = posix_spawn
"""
    dies = "echo $$ >> pids; [ $(wc -l < pids) = 2 ] || kill -9 $$"
    one = Kept(tmp_path, dies, fails, is_awaited=False)
    assert one.process.wait() == (0 if starts == 2 else 127)
    assert len(one.pids()) == starts and "no room" in one.log.read_text()
