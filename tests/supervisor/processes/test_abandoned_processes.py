"""Which processes it spares; the kill suite ends whole runs with it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import roost
from roost.supervisor.processes import cgroup
from roost.supervisor.processes.abandoned_processes import kill_abandoned

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SRC = str(Path(roost.__file__).parents[1])
WAITS = "import os, signal; os.write(1, b'1'); signal.pause()"


def carrier(token: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", WAITS], env={"ROOST_TOKEN": token}, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    with child.stdout as pipe:
        pipe.read(1)
    return child


def test_only_the_sessions_named() -> None:
    tokens = [secrets.token_hex(16) for _ in range(3)]
    children = [carrier(token) for token in tokens]
    assert kill_abandoned(tokens[:2]) == sorted(child.pid for child in children[:2])
    assert all(child.poll() is not None for child in children[:2])
    assert children[2].poll() is None
    assert kill_abandoned(tokens[:2]) == []
    children[2].kill()
    children[2].wait()


@pytest.mark.parametrize("token", ["", "0", "x" * 32, "../../etc"])
def test_an_invalid_token_ends_no_process(token: str) -> None:
    child = carrier(token)
    assert kill_abandoned([token]) == []
    assert child.poll() is None
    child.kill()
    child.wait()


def test_a_caller_that_carries_the_token_itself() -> None:
    """A `roost` inside of a run: it and what it descends from stay, its sisters end."""
    token = secrets.token_hex(16)
    caller = (
        f"import sys; sys.path.insert(0, {SRC!r})\n"
        "from roost.supervisor.processes.abandoned_processes import kill_abandoned\n"
        f"print(len(kill_abandoned([{token!r}])))"
    )
    above = (
        "import subprocess, sys\n"
        f"sister = subprocess.Popen([sys.executable, '-I', '-S', '-c', {WAITS!r}], stdout=subprocess.PIPE)\n"
        "sister.stdout.read(1)\n"
        f"subprocess.run([sys.executable, '-I', '-S', '-c', {caller!r}], check=True)\n"
        "print(sister.wait())"
    )
    argv = [sys.executable, "-I", "-S", "-c", above]
    done = subprocess.run(argv, env={"ROOST_TOKEN": token}, capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["1", "-9"], done.stderr


def test_a_pid_that_meanwhile_is_another_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """The carrier ends between the look at its environment and the signal, and its pid is reused."""
    token = secrets.token_hex(16)
    child = carrier(token)
    strangers: list[int] = []
    fstat = os.fstat

    def recycle(fd: int) -> os.stat_result:
        if not strangers and os.readlink(f"/proc/self/fd/{fd}") == f"/proc/{child.pid}/environ":  # noqa: PTH115
            found = fstat(fd)
            child.kill()
            child.wait()
            strangers.append(started_as(child.pid))
            return found
        return fstat(fd)

    monkeypatch.setattr(os, "fstat", recycle)
    assert kill_abandoned([token]) == []
    (stranger,) = strangers
    assert os.waitpid(stranger, os.WNOHANG | os.WUNTRACED) == (0, 0), "neither stopped nor ended"
    os.kill(stranger, signal.SIGKILL)
    os.waitpid(stranger, 0)


def started_as(pid: int) -> int:
    """A new process under a pid of our choice; another program may be faster, so it is tried a few times."""
    for _ in range(100):
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        except OSError as error:
            pytest.skip(f"pids cannot be chosen here: {error}")
        # Not fork: copying our memory would leave other programs the time to take the pid.
        found = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", WAITS], {})
        if found == pid:
            return found
        os.kill(found, signal.SIGKILL)
        os.waitpid(found, 0)
    pytest.skip("the pid was not to be had")


@pytest.mark.needs_cgroup
def test_groups_that_are_not_ours_to_end(tmp_path: Path) -> None:
    path = cgroup.create(secrets.token_hex(16))
    assert path is not None
    child = carrier("")
    Path(path, "cgroup.procs").write_text(str(child.pid))
    kill_abandoned([], [str(Path(path).parent), f"{path}/../{Path(path).name}", str(tmp_path)])
    assert child.poll() is None
    kill_abandoned([], [path])
    assert child.wait(100) == -9
    assert not Path(path).exists()


@pytest.mark.needs_cgroup
def test_a_caller_inside_the_group() -> None:
    """Its own group is not killed under it; who carries the token in there is."""
    token = secrets.token_hex(16)
    path = cgroup.create(token)
    assert path is not None
    child = carrier(token)
    Path(path, "cgroup.procs").write_text(str(child.pid))
    code = (
        f"import sys; sys.path.insert(0, {SRC!r})\n"
        "from roost.supervisor.processes import cgroup\n"
        "from roost.supervisor.processes.abandoned_processes import kill_abandoned\n"
        f"assert cgroup.join({path!r})\n"
        f"print(kill_abandoned([{token!r}], [{path!r}]))"
    )
    argv = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[{child.pid}]"
    assert child.wait(100) == -9
    cgroup.remove(path)
