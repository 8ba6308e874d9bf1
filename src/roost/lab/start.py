"""How an operation starts a session: spawns its guard, and knows for sure that it runs."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from roost.base.errors import RoostError
from roost.lab import cgroup, guard, meeting
from roost.lab.spec import Spec
from roost.lab.tree import kill_tree

_PATHS = ("cwd", "package", "output", "session_file", "progress", "stacks", "terminal")


class Supervised(NamedTuple):
    """A session that runs by itself."""

    process: subprocess.Popen[bytes]
    """The guard. It ends last, with the exit code that the program should have. A caller that stays must
    ``wait()`` for it, or a zombie remains."""
    supervisor_pid: int
    """Where signals go (`lab.supervisor`); those sent to the guard are passed on."""


def start(spec: Spec, *, lock_fd: int | None, timeout_seconds: float = 20.0) -> Supervised:
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
    ready_fd, supervisor_ready_fd = os.pipe()
    spec = _absolute(spec)._replace(lock_fd=lock_fd, ready_fd=supervisor_ready_fd)
    try:
        try:
            child = _spawn(spec)
        finally:
            os.close(supervisor_ready_fd)
        assert child.stderr is not None
        with child.stderr:
            line = _first_line(spec, child, ready_fd, timeout_seconds)
            if not line:
                _end(child, spec)
                raise _too_late(spec, timeout_seconds) if line is None else _not_started(spec, child)
    finally:
        os.close(ready_fd)
    return Supervised(child, int(line))


def _absolute(spec: Spec) -> Spec:
    """The supervisor lives in the root folder, so that it never keeps a disk from being unmounted."""
    paths: dict[str, Any] = {
        name: str(Path(path).absolute()) for name in _PATHS if (path := getattr(spec, name))
    }
    return spec._replace(**paths)


def _spawn(spec: Spec) -> subprocess.Popen[bytes]:
    # start_new_session: a Ctrl-C at the terminal must not reach it even in its first milliseconds.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(guard.__file__).resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
        pass_fds=[fd for fd in (spec.lock_fd, spec.ready_fd, *spec.lease_fds) if fd is not None],
    )


def _first_line(
    spec: Spec, child: subprocess.Popen[bytes], ready_fd: int, timeout_seconds: float
) -> bytes | None:
    """Hands the spec over; the supervisor's pid, which says that the session stands. Empty: it ended
    instead. None: it said nothing in time."""
    try:
        _hand_over(spec, child)
        poller = select.poll()
        poller.register(ready_fd, select.POLLIN)
        return os.read(ready_fd, 32) if poller.poll(timeout_seconds * 1000) else None
    except BaseException:  # Ctrl-C: what nobody has heard of yet must not go on alone
        child.terminate()
        raise


def _hand_over(spec: Spec, child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    try:
        with child.stdin as pipe:
            pipe.write(spec.to_json().encode())
    except BrokenPipeError:  # it died at once; why is on its stderr
        return


def _end(child: subprocess.Popen[bytes], spec: Spec) -> None:
    """Ends what did not come up, with all that it has started already, and waits for it."""
    child.send_signal(signal.SIGSTOP)  # the guard must not see its supervisor die and write that down
    kill_tree(child.pid, include_root=False)
    child.kill()
    meeting.remove(spec.token)
    group = cgroup.path_of(spec.token)
    if group is not None:
        cgroup.kill(group)
        cgroup.remove(group)
    child.wait()


def _too_late(spec: Spec, timeout_seconds: float) -> RoostError:
    return RoostError(
        f"the supervisor of session {spec.session} did not come up within {timeout_seconds:g} s "
        "and was ended",
        where=spec.package,
        fix="try again; a loaded machine or a dead network disk can do this",
    )


def _not_started(spec: Spec, child: subprocess.Popen[bytes]) -> RoostError:
    assert child.stderr is not None
    said = child.stderr.read().decode(errors="replace").strip()
    why = f"did not start: {said}" if said else "ended at its start and said nothing"
    fix = None if said else "try again; if memory ran out, `dmesg` tells"
    return RoostError(f"the supervisor of session {spec.session} {why}", where=spec.package, fix=fix)
