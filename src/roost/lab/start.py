"""How an operation starts a session: spawns its supervisor, and knows for sure that it runs."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

from roost.base.errors import RoostError
from roost.lab import supervisor
from roost.lab.supervisor import Spec


def start(spec: Spec, *, lock_fd: int | None, timeout_seconds: float = 20.0) -> subprocess.Popen[bytes]:
    """Starts the supervisor of one session and waits until it has recorded the session.

    It outlives the caller. A caller that stays must ``wait()`` for it, or a zombie remains; the exit code is
    what the program should exit with. Its stop signals are in `lab.supervisor`.

    Args:
        spec: The session; its descriptors are filled in here, its paths made absolute.
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
            if not _reached(spec, child, ready_fd, timeout_seconds):
                child.kill()  # the kernel ends its worker with it
                raise _not_started(spec, child, timeout_seconds)
    finally:
        os.close(ready_fd)
    return child


def _absolute(spec: Spec) -> Spec:
    """The supervisor lives in the root folder, so that it never keeps a disk from being unmounted."""
    return spec._replace(
        cwd=_absolute_path(spec.cwd),
        package=_absolute_path(spec.package),
        output=_absolute_path(spec.output),
        session_file=_absolute_path(spec.session_file),
    )


def _absolute_path(path: str) -> str:
    return str(Path(path).absolute())


def _spawn(spec: Spec) -> subprocess.Popen[bytes]:
    # start_new_session: a Ctrl-C at the terminal must not reach it even in its first milliseconds.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(supervisor.__file__).resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
        pass_fds=[fd for fd in (spec.lock_fd, spec.ready_fd) if fd is not None],
    )


def _reached(spec: Spec, child: subprocess.Popen[bytes], ready_fd: int, timeout_seconds: float) -> bool:
    """Hands the spec over; whether the supervisor then said in time that the session stands."""
    try:
        _hand_over(spec, child)
        poller = select.poll()
        poller.register(ready_fd, select.POLLIN)
        return bool(poller.poll(timeout_seconds * 1000)) and os.read(ready_fd, 1) == b"1"
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


def _not_started(spec: Spec, child: subprocess.Popen[bytes], timeout_seconds: float) -> RoostError:
    assert child.stderr is not None
    code = child.wait()
    said = child.stderr.read().decode(errors="replace").strip()
    why = said or f"it ended with {code} within {timeout_seconds:g} s and said nothing"
    return RoostError(f"the supervisor of session {spec.session} did not start: {why}", where=spec.package)
