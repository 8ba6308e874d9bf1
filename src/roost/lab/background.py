"""A process of a user's own in the background, of which there is one: the lab's daemon, the server.

It holds a lock, tells in a file beside who it is, and gives a line to whoever starts it once it is ready.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from roost import __version__
from roost.base import durable, process, regular
from roost.base.errors import Refused, RoostError
from roost.lab.ending import status_name

_END_SECONDS, _TICK_SECONDS = 20.0, 0.02
_SAID_SECONDS = 2.0


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Who it is."""

    pid: int
    start_ticks: int | None
    boot_id: str
    version: str
    """Of roost."""
    started: float
    """Unix seconds."""

    @classmethod
    def own(cls, **more: Any) -> Self:
        """Of this process, which begins now.

        Args:
            **more: What this kind of process tells beside.
        """
        pid = os.getpid()
        return cls(
            pid=pid,
            start_ticks=process.start_ticks(pid),
            boot_id=process.boot_id(),
            version=__version__,
            started=time.time(),
            **more,
        )

    @property
    def lives(self) -> bool:
        """Whether exactly this process is still there."""
        return process.alive(self.pid, self.start_ticks, self.boot_id)


T = TypeVar("T", bound=About)


def tell(path: Path, own: About) -> None:
    """Writes down who we are.

    Raises:
        OSError: It cannot be written.
    """
    durable.write(path, msgspec.json.encode(own), mode=0o600)


def about(path: Path, kind: type[T]) -> T | None:
    """The one that lives, by what it has told; None if there is none."""
    try:
        found = msgspec.json.decode(regular.read(path), type=kind)
    except (OSError, msgspec.MsgspecError, RecursionError):  # damaged, it tells of nobody
        return None
    return found if found.lives else None


def lock(path: Path) -> int | None:
    """Makes us the one that there is, until the descriptor that it gives is closed; None: another one is.

    Raises:
        OSError: The lock cannot be made.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def ready(fd: int) -> None:
    """Gives the line to whoever has started us. From here on nobody but the log hears of our errors.

    Args:
        fd: As `start` gave its number; it is closed.
    """
    os.dup2(1, 2)
    with contextlib.suppress(BrokenPipeError):  # he has ended meanwhile
        os.write(fd, b"ready\n")
    os.close(fd)


class Unstarted(NamedTuple):
    """How one ended that did not become ready."""

    said: str
    """May be nothing."""
    exit_code: int | None
    """None: it was killed."""

    @property
    def kind(self) -> type[RoostError]:
        """Of the error that it is for whoever has started it: a refusal is one here, too."""
        return Refused if self.exit_code == Refused.exit_code else RoostError


def start(command: Sequence[str], log: Path, *, seconds: float) -> Unstarted | None:
    """Starts one that outlives us, and waits until it is ready, or has ended. Gives None if it is ready.

    Args:
        command: Gets the number of the descriptor for its line as its last argument.
        log: What it prints is added there; its owner's alone, and no link is followed.
        seconds: How long it may take.

    Raises:
        OSError: The log cannot be written, or no process can be started.
    """
    failed, was_killed = _started(command, log, seconds)
    if was_killed:  # whatever that was: a second one may come through
        failed, _ = _started(command, log, seconds)
    return failed


def _started(command: Sequence[str], log: Path, seconds: float) -> tuple[Unstarted | None, bool]:
    """How it ended, and whether somebody has killed it."""
    import subprocess  # who only looks for a daemon is spared its 5 ms

    read_fd, its_fd = os.pipe()
    with open(read_fd, "rb", buffering=0) as line:
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(log, flags, 0o600), "ab") as file:
                child = subprocess.Popen(
                    [*command, str(its_fd)],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.PIPE,
                    cwd="/",
                    start_new_session=True,
                    pass_fds=[its_fd],
                )
        finally:
            os.close(its_fd)
        poller = select.poll()
        poller.register(line, select.POLLIN)
        is_late = not poller.poll(seconds * 1000)
        is_ready = not is_late and bool(line.read(1))
    assert child.stderr is not None
    with child.stderr:
        if is_ready:
            child.returncode = 0  # it outlives us: nobody here waits for its end
            return None, False
        if not is_late:  # it has closed its end, as its process does that ends
            with contextlib.suppress(subprocess.TimeoutExpired):  # then it is killed
                child.wait(_END_SECONDS)
        code = child.returncode
        killed_by = code if code is not None and code < 0 else None
        child.kill()
        said = _said(child)
    if killed_by is not None:
        said = f"it was killed by {status_name(killed_by)} {said}".strip()
    return Unstarted(said, code if killed_by is None else None), killed_by is not None


def _said(child: Any) -> str:
    """What it has written to its stderr, which a process of its own may still hold."""
    from subprocess import TimeoutExpired

    try:
        said = child.communicate(timeout=_SAID_SECONDS)[1]
    except TimeoutExpired as error:
        said = error.stderr or b""
    return str(said, errors="replace").strip()


def end(one: About, what: str) -> None:
    """Ends one, and waits for that.

    Args:
        one: As it told of itself.
        what: For people: ``the server``.

    Raises:
        RoostError: It does not end.
    """
    process.send(signal.SIGTERM, one.pid, one.start_ticks, one.boot_id)
    deadline = time.monotonic() + _END_SECONDS
    while one.lives:
        if time.monotonic() > deadline:
            fix = f"kill -9 {one.pid}: nothing is lost"
            raise RoostError(f"{what} (pid {one.pid}) does not end", fix=fix)
        time.sleep(_TICK_SECONDS)
