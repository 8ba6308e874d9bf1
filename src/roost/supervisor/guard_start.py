"""How an operation starts a session: spawns its guard, and knows for sure that it runs."""

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
from roost.supervisor.forkserver import warm_templates
from roost.supervisor.forkserver.forked_guard import GUARD_COMMAND, ForkedGuard, GuardTemplate
from roost.supervisor.forkserver.guard_template import FIRST_FD
from roost.supervisor.processes import cgroup
from roost.supervisor.processes.process_tree import kill_tree
from roost.supervisor.session_spec import SessionSpec

_PATHS = ("cwd", "package", "output", "session_file", "request_file", "progress", "stacks", "terminal")


GuardProcess = subprocess.Popen[bytes] | ForkedGuard
"""A caller that stays must ``wait()`` for one of its own, or a zombie remains."""


class SupervisedSession(NamedTuple):
    """A session that runs by itself."""

    process: GuardProcess
    """The guard. It ends last."""
    supervisor_pid: int
    """Where signals go (`lab.supervisor`); those sent to the guard are passed on."""


class StartingSession:
    """A session whose guard was told what to run.

    Args:
        spec: The session.
        child: The guard.
        ready_fd: Says that it stands.
        timeout_seconds: How long that may take, from now on.
    """

    def __init__(self, spec: SessionSpec, child: GuardProcess, ready_fd: int, timeout_seconds: float) -> None:
        self.child = child
        self._spec, self._ready_fd = spec, ready_fd
        self._seconds, self._deadline = timeout_seconds, time.monotonic() + timeout_seconds

    def finish(self) -> int:
        """Waits until the supervisor has recorded the session; gives its pid.

        Raises:
            RoostError: It did not start in time, or ended before; nothing of it is left.
        """
        spec, child = self._spec, self.child
        assert child.stderr is not None
        try:
            with child.stderr:
                line = _read_ready_line(child, self._ready_fd, self._deadline)
                if not line:
                    _kill_failed_start(child, spec)
                    raise _start_timeout_error(spec, self._seconds) if line is None else _start_failed_error(spec, child)
        finally:
            os.close(self._ready_fd)
        return int(line)


def start_session(spec: SessionSpec, *, lock_fd: int | None, timeout_seconds: float = 20.0) -> SupervisedSession:
    """Starts the guard of one session and waits until the supervisor has recorded the session.

    Both outlive the caller.

    Args:
        spec: The session; lock and pipe are filled in here, its paths made absolute. Of the leases the
            caller closes its own descriptors, as of the lock.
        lock_fd: Holds the package's flock. The caller then closes its own copy (``close``, never
            ``LOCK_UN``, which would take the lock from the supervisor too): a copy that stays open keeps
            the package locked after the run.
        timeout_seconds: How long the start may take.

    Raises:
        RoostError: It did not start in time, or ended before; nothing of it is left.
    """
    coming = spawn_guard(spec, lock_fd=lock_fd, timeout_seconds=timeout_seconds)
    supervisor_pid = coming.finish()
    return SupervisedSession(coming.child, supervisor_pid)


def spawn_guard(
    spec: SessionSpec, *, lock_fd: int | None, timeout_seconds: float = 20.0, template: GuardTemplate | None = None
) -> StartingSession:
    """Starts the guard of one session, as `start_session` does, and waits for nothing.

    Args:
        spec: As for `start_session`, like the rest.
        lock_fd: Likewise.
        timeout_seconds: Likewise.
        template: The guard is forked from it, if it can be, and if there is no warm one (`lab.warm`).

    Raises:
        OSError: There are no processes or descriptors left.
    """
    ready_fd, its_ready_fd = os.pipe()
    spec = _with_absolute_paths(spec)._replace(lock_fd=lock_fd, ready_fd=its_ready_fd)
    try:
        try:
            child, spec = _create_guard(spec, template)
        finally:
            os.close(its_ready_fd)
        try:
            _send_spec(spec, child)
        except BaseException:  # Ctrl-C: what nobody has heard of yet must not go on alone
            child.send_signal(signal.SIGTERM)
            raise
    except BaseException:
        os.close(ready_fd)
        raise
    return StartingSession(spec, child, ready_fd, timeout_seconds)


def _create_guard(spec: SessionSpec, template: GuardTemplate | None) -> tuple[GuardProcess, SessionSpec]:
    """The guard, and the session with the descriptors that this one has."""
    fds = [fd for fd in (spec.ready_fd, spec.lock_fd, *spec.lease_fds) if fd is not None]
    child = warm_templates.fork_guard(spec, fds) or (template.fork(fds) if template is not None else None)
    if child is None:
        return _spawn_cold(spec), spec
    its = iter(range(FIRST_FD, FIRST_FD + len(fds)))
    ready_fd, lock_fd = next(its), None if spec.lock_fd is None else next(its)
    return child, spec._replace(ready_fd=ready_fd, lock_fd=lock_fd, lease_fds=tuple(its))


def _with_absolute_paths(spec: SessionSpec) -> SessionSpec:
    """The supervisor lives in the root folder, so that it never keeps a disk from being unmounted."""
    paths: dict[str, Any] = {
        name: str(Path(path).absolute()) for name in _PATHS if (path := getattr(spec, name))
    }
    return spec._replace(**paths)


def _spawn_cold(spec: SessionSpec) -> subprocess.Popen[bytes]:
    # start_new_session: a Ctrl-C at the terminal must not reach it even in its first milliseconds.
    return subprocess.Popen(
        GUARD_COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
        pass_fds=[fd for fd in (spec.lock_fd, spec.ready_fd, *spec.lease_fds) if fd is not None],
    )


def _send_spec(spec: SessionSpec, child: GuardProcess) -> None:
    assert child.stdin is not None
    try:
        with child.stdin as pipe:
            pipe.write(spec.to_json().encode())
    except BrokenPipeError:  # it died at once; why is on its stderr
        return


def _read_ready_line(child: GuardProcess, ready_fd: int, deadline: float) -> bytes | None:
    """The supervisor's pid, which says that the session stands. Empty: it ended instead. None: it said
    nothing in time."""
    poller = select.poll()
    poller.register(ready_fd, select.POLLIN)
    try:
        left = max(0.0, deadline - time.monotonic())
        return os.read(ready_fd, 32) if poller.poll(left * 1000) else None
    except BaseException:  # as in `spawn_guard`
        child.send_signal(signal.SIGTERM)
        raise


def _kill_failed_start(child: GuardProcess, spec: SessionSpec) -> None:
    """Ends what did not come up, with all that it has started already, and waits for it."""
    child.send_signal(signal.SIGSTOP)  # the guard must not see its supervisor die and write that down
    if child.poll() is None:  # else its pid may be somebody else's by now
        kill_tree(child.pid, include_root=False)
    child.kill()
    rendezvous.remove_folder(spec.token)
    group = cgroup.cgroup_path(spec.token)
    if group is not None:
        cgroup.kill(group)
        cgroup.remove(group)
    child.wait()


def _start_timeout_error(spec: SessionSpec, timeout_seconds: float) -> RoostError:
    return RoostError(
        f"the supervisor of session {spec.session} did not come up within {timeout_seconds:g} s "
        "and was ended",
        where=spec.package,
        fix="try again; a loaded machine or a dead network disk can do this",
    )


def _start_failed_error(spec: SessionSpec, child: GuardProcess) -> RoostError:
    assert child.stderr is not None
    said = child.stderr.read().decode(errors="replace").strip()
    why = f"did not start: {said}" if said else "ended at its start and said nothing"
    fix = None if said else "try again; if memory ran out, `dmesg` tells"
    return RoostError(f"the supervisor of session {spec.session} {why}", where=spec.package, fix=fix)
