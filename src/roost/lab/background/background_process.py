"""A process of a user's own in the background, of which there is one: the lab's daemon, the server.

It holds a lock, tells in a file beside who it is, and gives a line to whoever starts it: that it is ready, or
why it is not.
"""

# Not durable: a lock, and the log of a process of ours; nothing resumes from their files

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from roost import __version__
from roost.base import durable, safe_read
from roost.base.errors import Refused, RoostError
from roost.base.system import process_identity
from roost.lab.background import watchdog
from roost.supervisor.exit_status import status_name

_END_SECONDS, _TICK_SECONDS = 20.0, 0.02
_STDERR_SECONDS = 2.0
_READY = b"ready\n"
_WATCHDOG_COMMAND = (sys.executable, "-I", "-S", str(Path(watchdog.__file__).resolve()))


class RecordedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One of this machine."""

    pid: int
    start_ticks: int | None
    boot_id: str

    @property
    def lives(self) -> bool:
        """Whether exactly this process is still there."""
        return process_identity.is_alive(self.pid, self.start_ticks, self.boot_id)


class ProcessRecord(RecordedProcess, frozen=True, kw_only=True):
    """Who it is."""

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
            start_ticks=process_identity.start_ticks(pid),
            boot_id=process_identity.boot_id(),
            version=__version__,
            started=time.time(),
            **more,
        )


class _WatchdogRecord(msgspec.Struct, frozen=True):
    keeper: RecordedProcess | None = None


T = TypeVar("T", bound=ProcessRecord)


def write_record(path: Path, own: ProcessRecord) -> None:
    """Writes down who we are, and who starts us anew. Who was about to start the one before us anew is
    ended: we are here now.

    Raises:
        OSError: It cannot be written.
    """
    kept, keeper = _read_record(path, _WatchdogRecord), _own_watchdog()
    durable.write(path, msgspec.json.encode({**msgspec.structs.asdict(own), "keeper": keeper}), mode=0o600)
    if kept is not None and kept.keeper is not None and kept.keeper != keeper and kept.keeper.lives:
        process_identity.send_signal(
            signal.SIGTERM, kept.keeper.pid, kept.keeper.start_ticks, kept.keeper.boot_id
        )


def _own_watchdog() -> RecordedProcess | None:
    """Our parent, if it starts us anew; None: nobody does."""
    pid = os.getppid()
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    if os.fsencode(_WATCHDOG_COMMAND[-1]) not in line.split(b"\0"):
        return None
    return RecordedProcess(
        pid=pid, start_ticks=process_identity.start_ticks(pid), boot_id=process_identity.boot_id()
    )


def find_running(path: Path, kind: type[T]) -> T | None:
    """The one that lives, by what it has told; None if there is none."""
    found = _read_record(path, kind)
    return found if found is not None and found.lives else None


S = TypeVar("S", bound=msgspec.Struct)


def _read_record(path: Path, kind: type[S]) -> S | None:
    try:
        return msgspec.json.decode(safe_read.read(path), type=kind)
    except (OSError, msgspec.MsgspecError, RecursionError):  # damaged, it tells of nobody
        return None


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


class Starter:
    """Whoever has started us by `start`, and waits until we are ready.

    Args:
        fd: The number of the descriptor for our line, as `start` gave it; None: nobody waits.
    """

    def __init__(self, fd: int | None) -> None:
        # Its keeper gives no pipe to one that it has started anew.
        self._fd = fd if fd is not None and stat.S_ISFIFO(os.fstat(fd).st_mode) else None

    def ready(self) -> None:
        """Tells that we are. From here on nobody but the log hears of our errors."""
        if self._fd is not None:
            os.dup2(1, 2)
            self._tell(self._fd, _READY)

    def failed(self, error: RoostError | OSError) -> int:
        """Tells why we end, to our stderr if nobody waits; gives the exit code."""
        code = error.exit_code if isinstance(error, RoostError) else RoostError.exit_code
        if self._fd is None:
            with contextlib.suppress(OSError):  # the log may be what there is no room for
                print(f"roost: {error}", file=sys.stderr, flush=True)
        else:
            self._tell(self._fd, f"{json.dumps(_Failure.of(error))}\n".encode())
        return code

    def _tell(self, fd: int, line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # he has ended meanwhile
            os.write(fd, line)
        os.close(fd)
        self._fd = None


class _Failure(NamedTuple):
    """Why one is not ready, as it tells that itself."""

    what: str
    is_refusal: bool = False
    where: str | None = None
    fix: str | None = None

    @classmethod
    def of(cls, error: RoostError | OSError) -> _Failure:
        if isinstance(error, OSError):
            return cls(str(error))
        where = None if error.where is None else str(error.where)
        return cls(error.summary, isinstance(error, Refused), where, error.fix)

    def error(self, what: str, log: Path) -> RoostError:
        """For whoever has started it: a refusal is one here, too, word for word.

        Args:
            what: It is, for people: ``the server``.
            log: Where it may have told more.
        """
        if self.is_refusal:
            return Refused(self.what, where=self.where, fix=self.fix)
        return RoostError(
            f"{what} did not start: {self.what}",
            where=self.where or log,
            fix=self.fix or "try again; its log may tell more",
        )


def start(command: Sequence[str], log: Path, *, what: str, seconds: float) -> RoostError | None:
    """Starts one that outlives us, and waits until it is ready, or has ended. Gives why it is not ready; None
    if it is. From then on it is started anew whenever it is killed (`lab.keeper`).

    Args:
        command: A program's whole path, and its arguments; it gets the number of the descriptor for its line
            as the last one (`Starter`).
        log: What it prints is added there; its owner's alone, and no link is followed.
        what: It is, for people: ``the server``.
        seconds: How long it may take.

    Raises:
        OSError: The log cannot be written, or no process can be started.
    """
    failed, was_killed = _start_once(command, log, seconds)
    if was_killed:  # whatever that was: a second one may come through
        failed, _ = _start_once(command, log, seconds)
    return None if failed is None else failed.error(what, log)


def _start_once(command: Sequence[str], log: Path, seconds: float) -> tuple[_Failure | None, bool]:
    """Why it is not ready, and whether somebody has killed it."""
    import subprocess  # who only looks for a daemon is spared its 5 ms

    read_fd, its_fd = os.pipe()
    with open(read_fd, "rb") as line:
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(log, flags, 0o600), "ab") as file:
                child = subprocess.Popen(
                    [*_WATCHDOG_COMMAND, *command, str(its_fd)],
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
        told = b"" if is_late else line.readline()
    assert child.stderr is not None
    with child.stderr:
        if told == _READY:
            child.returncode = 0  # it outlives us: nobody here waits for its end
            return None, False
        if not is_late:  # it has closed its end, as its process does that ends
            with contextlib.suppress(subprocess.TimeoutExpired):  # then it is killed
                child.wait(_END_SECONDS)
        code = child.returncode
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        said = _read_stderr(child)
    if told:
        return _Failure(*json.loads(told)), False
    was_killed, how = False, f"it was not ready within {seconds:g} s" if is_late else ""
    if code is not None and code < 0:
        was_killed, how = True, f"it was killed by {status_name(code)}"
    return _Failure(": ".join(filter(None, [how, said])) or "it said nothing"), was_killed


def _read_stderr(child: Any) -> str:
    """What it has written to its stderr, which a process of its own may still hold."""
    from subprocess import TimeoutExpired

    try:
        said = child.communicate(timeout=_STDERR_SECONDS)[1]
    except TimeoutExpired as error:
        said = error.stderr or b""
    return str(said, errors="replace").strip()


def stop(path: Path, kind: type[T], what: str) -> T | None:
    """Ends the one that lives, or that its keeper is about to start anew, and waits for that. Gives which it
    was; None if there was none.

    Args:
        path: Where it has told of itself.
        kind: What it has told.
        what: It is, for people: ``the server``.

    Raises:
        RoostError: It does not end.
    """
    found, kept = _read_record(path, kind), _read_record(path, _WatchdogRecord)
    keeper = kept.keeper if kept is not None else None
    there = [one for one in (found, keeper) if one is not None and one.lives]
    if keeper in there:  # first: it is to start nobody
        process_identity.send_signal(signal.SIGTERM, keeper.pid, keeper.start_ticks, keeper.boot_id)
    for one in there:
        end(one, what)
    return found if there else None


def end(one: RecordedProcess, what: str) -> None:
    """Ends one, and waits for that.

    Args:
        one: As it told of itself.
        what: For people: ``the server``.

    Raises:
        RoostError: It does not end.
    """
    process_identity.send_signal(signal.SIGTERM, one.pid, one.start_ticks, one.boot_id)
    deadline = time.monotonic() + _END_SECONDS
    while one.lives:
        if time.monotonic() > deadline:
            fix = f"kill -9 {one.pid}: nothing is lost"
            raise RoostError(f"{what} (pid {one.pid}) does not end", fix=fix)
        time.sleep(_TICK_SECONDS)
