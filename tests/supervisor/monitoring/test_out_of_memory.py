"""How a command that ran out of memory is recognised."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roost.supervisor.exit_status import SessionOutcome, judge_outcome
from roost.supervisor.monitoring.out_of_memory import (
    OomKills,
    count_oom_kills,
    explain_out_of_memory,
    is_killed_status,
)
from tests.messages import Messages

KILLED = judge_outcome(b"", -signal.SIGKILL, stop_requested=False, killed=False, is_command=True)
NOTHING = OomKills(3, False)


def ended(*lines: str) -> SessionOutcome:
    last = f": {lines[-1]}" if lines else ""
    return SessionOutcome("failed", 1, "exit", f"the command exited with 1{last}")


def failed(*lines: str) -> str | None:
    """The error of a command that has printed this and exited with 1."""
    return explain_out_of_memory(ended(*lines), list(lines), NOTHING, None).error


CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def test_what_it_printed_itself(messages: Messages) -> None:
    error = failed("Traceback", CUDA)
    assert error is not None and error != ended(CUDA).error and error.endswith(f": {ended(CUDA).error}")
    messages.check(error)
    wrapped = "ChildFailedError"
    error = failed(CUDA, "=====", wrapped)
    assert error is not None and error.endswith(f": {ended(wrapped).error}; {CUDA}")
    for line in ("numpy.core._exceptions.MemoryError: Unable", "terminate called: std::bad_alloc"):
        error = failed(line)
        assert error is not None and error != ended(line).error and error.endswith(f": {ended(line).error}")
    messages.check(error)


@pytest.mark.parametrize("lines", [(), ("KeyError: 'x'",), (CUDA, *["more"] * 40)])
def test_what_failed_by_something_else_says_nothing_of_it(lines: tuple[str, ...]) -> None:
    assert failed(*lines) == ended(*lines).error


def test_what_the_kernel_killed(messages: Messages) -> None:
    own = explain_out_of_memory(KILLED, [], OomKills(0, True), OomKills(1, True))
    assert own.error is not None and "SIGKILL" in own.error
    messages.check(own.error)
    assert own._replace(error=None) == KILLED._replace(error=None)
    two = explain_out_of_memory(KILLED, [], NOTHING, OomKills(5, False))
    assert two.error is not None and "SIGKILL" in two.error and "2" in two.error
    messages.check(two.error)
    assert explain_out_of_memory(KILLED, [], NOTHING, NOTHING) == KILLED, "killed by a user"


def test_which_processes_the_kernel_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n")
    assert count_oom_kills(str(tmp_path)) == OomKills(1, True)
    assert not count_oom_kills(str(tmp_path / "none")).are_own
    assert count_oom_kills(None).number >= 0 and is_killed_status(137) and not is_killed_status(1)


GROUPS = Path("/sys/fs/cgroup/memory")


@pytest.mark.skipif(
    sys.platform != "linux" or not (GROUPS / "memory.oom_control").exists(), reason="cgroup v1"
)
def test_a_real_one_is_counted() -> None:
    group = GROUPS / f"roost-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("only root may limit memory")
    try:
        (group / "memory.limit_in_bytes").write_text(str(16 << 20))
        before = count_oom_kills(None)
        enter = f"open('{group}/cgroup.procs', 'w').write('0'); b = b'x' * (256 << 20); print(len(b))"
        done = subprocess.run([sys.executable, "-c", f"import mmap; {enter}"], capture_output=True)
        assert is_killed_status(done.returncode), done
        assert explain_out_of_memory(KILLED, [], before, count_oom_kills(None)).error != KILLED.error
    finally:
        group.rmdir()
