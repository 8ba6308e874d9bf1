"""Starts the worker of a session: its pipes, and the steps by which the forked child becomes the worker."""

# Standard library only
# Not durable: opens the terminal of a worker

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from roost.base.system import prctl
from roost.base.system.worker_protocol import (
    NOT_STARTED,
    REPORT_VARIABLE,
    STACKS_VARIABLE,
    TOKEN_VARIABLE,
)
from roost.supervisor import signals
from roost.supervisor.processes import cgroup
from roost.supervisor.session_spec import SessionSpec

if TYPE_CHECKING:
    from roost.supervisor.forkserver.forked_worker import WarmWorker

_NOT_FOUND_EXIT_CODE = 127
"""The exit code of shells for a program that does not exist."""


class WorkerProcess(NamedTuple):
    """A started worker, and the supervisor's ends of its pipes (none of them blocks)."""

    pid: int
    report_fd: int
    """Receives the final report."""
    joined_fd: int
    """Receives one byte if the worker could join its cgroup."""
    is_warm: bool = False
    """Whether it was forked with its imports done, and started no interpreter."""


class _ChildDescriptors(NamedTuple):
    """The child's descriptors."""

    output: int
    report: int
    stacks: int
    joined: int


def start_worker(
    spec: SessionSpec,
    env: dict[str, str],
    *,
    output_fd: int,
    stacks_fd: int,
    group: str | None,
    terminal: str = "",
    warm: WarmWorker | None = None,
) -> WorkerProcess:
    """Forks a worker. The signals that the supervisor handles are blocked from before the fork: the child
    must find the default actions and not a copy of the supervisor's handlers. The caller unblocks them.

    Args:
        spec: The session.
        env: The worker's environment variables in addition to those of the session.
        output_fd: The file into which the worker prints.
        stacks_fd: The worker's end of the pipe for stacks.
        group: The session's cgroup, if there is one.
        terminal: The terminal that the worker gets instead of the output; empty: none.
        warm: The worker that a fork of this process can become.

    Raises:
        OSError: There are no descriptors or processes left.
    """
    (report, child_report), (joined, child_joined) = os.pipe(), os.pipe()
    for fd in (report, joined):
        os.set_blocking(fd, False)
    if sys.platform == "linux":
        prctl.system_call()  # loads it once, here and not in the child
    supervisor_pid = os.getpid()
    is_later = terminal or spec.restarted  # modules loaded long ago may be outdated
    if warm is not None and (is_later or not warm.can_become(spec.argv, spec.env | env)):
        warm = None
    # Prepared here and not in the child, for which each page that it touches is copied.
    # A launcher closes the descriptors that its ranks would inherit; by this path they find the pipe.
    where = f"/proc/{supervisor_pid}/fd/{report}" if spec.is_launcher else str(child_report)
    stacks = {} if spec.is_launcher else {STACKS_VARIABLE: str(stacks_fd)}
    env = {**spec.env, TOKEN_VARIABLE: spec.token, REPORT_VARIABLE: where, **stacks, **env}
    spec = spec._replace(env=env, terminal=terminal)
    program = _program_path(spec.argv[0], env.get("PATH", os.defpath))
    ends = _ChildDescriptors(output_fd, child_report, stacks_fd, child_joined)
    signals.block(signals.HANDLED_SIGNALS)
    # A child without `exec` needs the hooks of Python and of libraries after a fork.
    forked = cgroup.fork_into(group) if group is not None and warm is None else None
    pid = os.fork() if forked is None else forked
    if pid == 0:
        _become_worker(spec, program, supervisor_pid, ends, group, is_inside=forked is not None, warm=warm)
    for fd in (child_report, child_joined):
        os.close(fd)
    return WorkerProcess(pid, report, joined, is_warm=warm is not None)


def is_in_cgroup(worker: WorkerProcess) -> bool:
    """Whether a worker is in its cgroup; known once it has started."""
    try:
        return os.read(worker.joined_fd, 1) == b"1"
    except BlockingIOError:
        return False


def _program_path(name: str, path: str) -> str:
    """Returns the path of a program; its unchanged name if the path is ambiguous or not executable: `exec`
    then raises the error."""
    for folder in path.split(os.pathsep):
        if "/" in name or not folder.startswith("/"):  # relative to the worker's folder
            break
        found = f"{folder}/{name}"
        if os.access(found, os.X_OK) and not os.path.isdir(found):  # noqa: PTH112
            return found
    return name


def _become_worker(
    spec: SessionSpec,
    program: str,
    supervisor_pid: int,
    ends: _ChildDescriptors,
    group: str | None,
    *,
    is_inside: bool,
    warm: WarmWorker | None,
) -> NoReturn:
    try:
        prctl.set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != supervisor_pid:  # it ended before the line above: no signal will come
            os._exit(1)
        if is_inside or (group is not None and cgroup.join(group)):
            os.write(ends.joined, b"1")
        os.setsid()  # so that code that signals its own group does not hit the supervisor
        _redirect_streams(spec.terminal, ends.output)
        for fd in (ends.report, ends.stacks, spec.lock_fd):
            if fd is not None:
                os.set_inheritable(fd, True)
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        core = spec.limits.core_bytes
        resource.setrlimit(resource.RLIMIT_CORE, (core if hard < 0 else min(core, hard), hard))
        signals.restore_defaults()
        os.chdir(spec.cwd)
        if warm is not None:
            warm.become(spec.argv, spec.env)
        os.execvpe(program, spec.argv, spec.env)
    except (OSError, ValueError) as error:
        code = _NOT_FOUND_EXIT_CODE if spec.is_command else 1
        line = {
            "state": "failed",
            "exit_code": code,
            "reason": NOT_STARTED,
            "error": _start_error(spec, error),
        }
        os.write(ends.report, json.dumps(line).encode() + b"\n")
    finally:
        os._exit(_NOT_FOUND_EXIT_CODE)


def _start_error(spec: SessionSpec, error: OSError | ValueError) -> str:
    """Returns why the worker did not start. A command is named as it was typed, not by the last folder of
    PATH."""
    if not spec.is_command or not isinstance(error, OSError) or error.strerror is None:
        return f"the {'command' if spec.is_command else 'worker'} could not be started: {error}"
    what = spec.cwd if error.filename == spec.cwd else spec.argv[0]
    return f"the command could not be started: {what}: {error.strerror}"


def _redirect_streams(terminal: str, output_fd: int) -> None:
    if terminal:
        # Without O_NOCTTY its Ctrl-C would go to the worker instead of to the program that the user started.
        fd = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
        for stream in range(3):
            os.dup2(fd, stream)
        return
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
