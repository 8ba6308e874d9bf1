"""Starts a session: an operation starts its guard and waits until the session is recorded."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from roost.base.errors import RoostError
from roost.supervisor import rendezvous
from roost.supervisor.forkserver import template_client
from roost.supervisor.forkserver.template_client import ForkedGuard
from roost.supervisor.forkserver.template_process import FIRST_FD
from roost.supervisor.guard import GUARD_COMMAND
from roost.supervisor.processes import cgroup
from roost.supervisor.processes.process_tree import kill_tree
from roost.supervisor.session_spec import SessionSpec

_PATHS = (
    "cwd", "package", "output", "session_file", "request_file", "progress", "stacks", "seal", "terminal",
    "system", "samples", "owner",
)  # fmt: skip


GuardProcess = subprocess.Popen[bytes] | ForkedGuard
"""A caller that keeps running must ``wait()`` for a guard that it started, or a zombie remains."""


class StartInterrupted(RoostError):
    """A session did not start because its guard or supervisor was killed, or was too slow. Nothing is wrong
    with the session, and nothing of it is left: it may be started again."""


class SupervisedSession(NamedTuple):
    """A running session, independent of the process that started it."""

    process: GuardProcess
    """The guard, which is the last process to end."""
    supervisor_pid: int
    """The process to send signals to; the guard passes on those sent to itself."""


class StartingSession:
    """A session whose guard has received its spec.

    Args:
        spec: The session.
        guard: The guard.
        ready_fd: Becomes readable when the session is recorded.
        timeout_seconds: How long the start may take from now on.
    """

    def __init__(self, spec: SessionSpec, guard: GuardProcess, ready_fd: int, timeout_seconds: float) -> None:
        self.guard = guard
        self._spec, self._ready_fd = spec, ready_fd
        self._seconds, self._deadline = timeout_seconds, time.monotonic() + timeout_seconds

    def wait_until_recorded(self) -> int:
        """Waits until the supervisor has recorded the session; returns the supervisor's pid.

        Raises:
            StartInterrupted: The supervisor did not start in time, or was killed; no process of it is left.
            RoostError: The supervisor could not start; no process of it is left.
        """
        spec, guard = self._spec, self.guard
        assert guard.stderr is not None
        try:
            with guard.stderr:
                line = _read_ready_line(guard, self._ready_fd, self._deadline)
                if not line:
                    _kill_failed_start(guard, spec)
                    raise (
                        _start_timeout_error(spec, self._seconds)
                        if line is None
                        else _start_failed_error(spec, guard)
                    )
        finally:
            os.close(self._ready_fd)
        return int(line)


def start_session(
    spec: SessionSpec, *, lock_fd: int | None, timeout_seconds: float = 20.0
) -> SupervisedSession:
    """Starts the guard of one session and waits until the supervisor has recorded the session.

    Both outlive the caller.

    Args:
        spec: The session; lock and pipe are filled in here, its paths made absolute. The caller closes its
            own descriptors of the leases, as of the lock.
        lock_fd: Holds the package's flock. The caller then closes its own copy (``close``, never ``LOCK_UN``,
            which would take the lock from the supervisor too): a copy that stays open keeps the package
            locked after the run.
        timeout_seconds: How long the start may take.

    Raises:
        StartInterrupted: The supervisor did not start in time, or was killed; no process of it is left.
        RoostError: The supervisor could not start; no process of it is left.
    """
    starting = spawn_guard(spec, lock_fd=lock_fd, timeout_seconds=timeout_seconds)
    supervisor_pid = starting.wait_until_recorded()
    return SupervisedSession(starting.guard, supervisor_pid)


def spawn_guard(
    spec: SessionSpec,
    *,
    lock_fd: int | None,
    timeout_seconds: float = 20.0,
    guard_template: Path | None = None,
) -> StartingSession:
    """Starts the guard of one session without waiting for the supervisor. For the other arguments see
    `start_session`.

    Args:
        guard_template: Where the template for guards listens (`roost.supervisor.forkserver.template_pool`).

    Raises:
        OSError: There are no processes or descriptors left.
    """
    ready_fd, child_ready_fd = os.pipe()
    spec = _with_absolute_paths(spec)._replace(lock_fd=lock_fd, ready_fd=child_ready_fd)
    try:
        try:
            guard, spec = _create_guard(spec, guard_template)
        finally:
            os.close(child_ready_fd)
        try:
            _send_spec(spec, guard)
        except OSError:  # without its whole spec it has started nothing
            guard.kill()
            guard.wait()
            raise
        except BaseException:  # Ctrl-C: a session that the caller does not know must not continue
            guard.send_signal(signal.SIGTERM)
            raise
    except BaseException:
        os.close(ready_fd)
        raise
    return StartingSession(spec, guard, ready_fd, timeout_seconds)


def _create_guard(spec: SessionSpec, guard_template: Path | None) -> tuple[GuardProcess, SessionSpec]:
    """Returns the guard, and the spec with the descriptor numbers of that guard."""
    fds = [fd for fd in (spec.ready_fd, spec.lock_fd, *spec.lease_fds) if fd is not None]
    forked = template_client.fork_guard(spec, fds, guard_template)
    if forked is None:
        return _spawn_cold(spec), spec
    numbers = iter(range(FIRST_FD, FIRST_FD + len(fds)))
    ready_fd, lock_fd = next(numbers), None if spec.lock_fd is None else next(numbers)
    return forked, spec._replace(ready_fd=ready_fd, lock_fd=lock_fd, lease_fds=tuple(numbers))


def _with_absolute_paths(spec: SessionSpec) -> SessionSpec:
    """Makes paths absolute: the supervisor runs in the root folder, so that it never keeps a disk from being
    unmounted."""
    paths: dict[str, Any] = {
        name: str(Path(path).absolute()) for name in _PATHS if (path := getattr(spec, name))
    }
    return spec._replace(**paths)


def _spawn_cold(spec: SessionSpec) -> subprocess.Popen[bytes]:
    # The guard does not read the name, but shows it in its title, for which the command must have the room.
    name = os.path.basename(spec.package)  # noqa: PTH119
    # start_new_session: a Ctrl-C at the terminal must not reach it even in its first milliseconds.
    return subprocess.Popen(
        [*GUARD_COMMAND, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
        pass_fds=[fd for fd in (spec.lock_fd, spec.ready_fd, *spec.lease_fds) if fd is not None],
    )


def _send_spec(spec: SessionSpec, guard: GuardProcess) -> None:
    assert guard.stdin is not None
    try:
        with guard.stdin as pipe:
            pipe.write(spec.to_json().encode())
    except BrokenPipeError:  # it ended at once; the reason is on its stderr
        return


def _read_ready_line(guard: GuardProcess, ready_fd: int, deadline: float) -> bytes | None:
    """Returns the supervisor's pid, sent once the session is recorded. Empty: the guard ended instead. None:
    timeout."""
    poller = select.poll()
    poller.register(ready_fd, select.POLLIN)
    try:
        remaining = max(0.0, deadline - time.monotonic())
        return os.read(ready_fd, 32) if poller.poll(remaining * 1000) else None
    except BaseException:  # as in `spawn_guard`
        guard.send_signal(signal.SIGTERM)
        raise


def _kill_failed_start(guard: GuardProcess, spec: SessionSpec) -> None:
    """Kills a guard that did not start in time, with all processes it has started already, and waits for
    it."""
    guard.send_signal(signal.SIGSTOP)  # the guard must not record the death of its supervisor
    if guard.poll() is None:  # else its pid may be reused by now
        kill_tree(guard.pid, include_root=False)
    guard.kill()
    rendezvous.remove_folder(spec.token)
    group = cgroup.cgroup_path(spec.token)
    if group is not None:
        cgroup.kill(group)
        cgroup.remove(group)
    guard.wait()


def _start_timeout_error(spec: SessionSpec, timeout_seconds: float) -> RoostError:
    return StartInterrupted(
        f"the supervisor of session {spec.session} did not start within {timeout_seconds:g} s and was killed",
        where=spec.package,
        fix="try again; a loaded machine or a dead network disk can be the cause",
    )


def _start_failed_error(spec: SessionSpec, guard: GuardProcess) -> RoostError:
    assert guard.stderr is not None
    what, message = f"the supervisor of session {spec.session}", guard.stderr.read().decode(errors="replace")
    if message.strip():
        return RoostError(f"{what} did not start: {message.strip()}", where=spec.package)
    fix = "try again; `dmesg` shows whether memory ran out"
    return StartInterrupted(f"{what} was killed during its start", where=spec.package, fix=fix)
