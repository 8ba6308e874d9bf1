"""Starting the worker of a session: its pipes, and what the forked child does to become it."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import NamedTuple, NoReturn

from roost.base.handover import REPORT_VARIABLE, STACKS_VARIABLE, TOKEN_VARIABLE
from roost.lab import cgroup, scope, signals
from roost.lab.ending import NOT_STARTED
from roost.lab.spec import Spec

_ALL_SIGNALS = frozenset(signal.valid_signals())
"""Asked for once: each becomes an object of Python's, 1 ms for all."""
_NOT_FOUND = 127
"""As shells end where there is no such program."""


class Worker(NamedTuple):
    """A worker that was started, and our ends of its pipes (none of them blocks)."""

    pid: int
    report_fd: int
    """Its final line."""
    joined_fd: int
    """One byte, if it could join its cgroup."""


class _Ends(NamedTuple):
    """The child's descriptors."""

    output: int
    report: int
    stacks: int
    joined: int


def start(
    spec: Spec, env: dict[str, str], *, output_fd: int, stacks_fd: int, group: str | None, terminal: str = ""
) -> Worker:
    """Forks a worker. All signals are blocked from before the fork: the child must find the default actions
    and not the copy of our handlers. The caller unblocks them.

    Args:
        spec: The session.
        env: What this worker has in its environment beside that of the session.
        output_fd: What it prints into.
        stacks_fd: Its end of the pipe for stacks.
        group: The session's cgroup, if there is one.
        terminal: What it gets instead of the output.

    Raises:
        OSError: There are no descriptors or processes left.
    """
    (report, its_report), (joined, its_joined) = os.pipe(), os.pipe()
    for fd in (report, joined):
        os.set_blocking(fd, False)
    if sys.platform == "linux":
        scope.prctl()  # loads ctypes once, here and not in the child
    supervisor_pid = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
    forked = cgroup.fork_into(group) if group is not None else None
    pid = os.fork() if forked is None else forked
    if pid == 0:
        # A launcher closes what its ranks would inherit; by this path they find the pipe all the same.
        where = f"/proc/{supervisor_pid}/fd/{report}" if spec.is_launcher else str(its_report)
        stacks = {} if spec.is_launcher else {STACKS_VARIABLE: str(stacks_fd)}
        env = {TOKEN_VARIABLE: spec.token, REPORT_VARIABLE: where, **stacks, **env}
        ends = _Ends(output_fd, its_report, stacks_fd, its_joined)
        spec = spec._replace(env=spec.env | env, terminal=terminal)
        _become_worker(spec, supervisor_pid, ends, group, is_inside=forked is not None)
    for fd in (its_report, its_joined):
        os.close(fd)
    return Worker(pid, report, joined)


def joined(worker: Worker) -> bool:
    """Whether it is in its cgroup; known once it has started."""
    try:
        return os.read(worker.joined_fd, 1) == b"1"
    except BlockingIOError:
        return False


def _become_worker(
    spec: Spec, supervisor_pid: int, ends: _Ends, group: str | None, *, is_inside: bool
) -> NoReturn:
    try:
        scope.signal_at_parents_death(signal.SIGKILL)
        if os.getppid() != supervisor_pid:  # it died before the line above: no signal will come
            os._exit(1)
        if is_inside or (group is not None and cgroup.join(group)):
            os.write(ends.joined, b"1")
        os.setsid()  # so that code that signals its own group does not hit the supervisor
        _take_streams(spec.terminal, ends.output)
        for fd in (ends.report, ends.stacks, spec.lock_fd):
            if fd is not None:
                os.set_inheritable(fd, True)
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        core = spec.limits.core_bytes
        resource.setrlimit(resource.RLIMIT_CORE, (core if hard < 0 else min(core, hard), hard))
        signals.restore()
        os.chdir(spec.cwd)
        os.execvpe(spec.argv[0], spec.argv, spec.env)
    except (OSError, ValueError) as error:
        code = _NOT_FOUND if spec.is_command else 1
        line = {"state": "failed", "exit_code": code, "reason": NOT_STARTED, "error": _why(spec, error)}
        os.write(ends.report, json.dumps(line).encode() + b"\n")
    finally:
        os._exit(_NOT_FOUND)


def _why(spec: Spec, error: OSError | ValueError) -> str:
    """Why it does not start. A command is called as it was typed, not by the last folder of the PATH."""
    if not spec.is_command or not isinstance(error, OSError) or error.strerror is None:
        return f"the {'command' if spec.is_command else 'worker'} could not be started: {error}"
    what = spec.cwd if error.filename == spec.cwd else spec.argv[0]
    return f"the command could not be started: {what}: {error.strerror}"


def _take_streams(terminal: str, output_fd: int) -> None:
    if terminal:
        # Without O_NOCTTY its Ctrl-C would go to the worker, past the program that the person started.
        fd = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
        for stream in range(3):
            os.dup2(fd, stream)
        return
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
