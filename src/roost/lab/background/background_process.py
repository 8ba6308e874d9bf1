"""A background process of a user, of which at most one runs: the lab's daemon, the server.

It holds a lock, writes a record of itself next to it, and sends one line to the command that starts it: that
it is ready, or why it is not.
"""

# Not durable: a lock, and the log of a background process; nothing resumes from these files

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
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

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
    """A process of this machine, identified beyond its pid.

    A record in a copied folder names processes of the original. So a recorded process is believed, and
    signalled, only while it has a file of this folder open: a lock, or a log.
    """

    pid: int
    start_ticks: int | None
    boot_id: str

    @classmethod
    def of_process(cls, pid: int) -> RecordedProcess:
        """Returns the identity of a process that exists."""
        ticks = process_identity.start_ticks(pid)
        return RecordedProcess(pid=pid, start_ticks=ticks, boot_id=process_identity.boot_id())

    @property
    def is_alive(self) -> bool:
        """Whether exactly this process still runs."""
        return process_identity.is_alive(self.pid, self.start_ticks, self.boot_id)

    def runs_with(self, file: Path) -> bool:
        """Whether exactly this process still runs and has a file open."""
        try:
            return self.is_alive and process_identity.has_open(self.pid, str(file))
        except PermissionError:
            return False


class ProcessRecord(RecordedProcess, frozen=True, kw_only=True):
    """The record that a background process writes of itself."""

    version: str
    """The version of roost."""
    started: float
    """Unix seconds."""

    @classmethod
    def of_this_process(cls, **more: Any) -> Self:
        """Returns the record of this process, started now.

        Args:
            **more: The further fields of the subclass.
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
    """The part of the record about the watchdog; its key in the file is `keeper`."""

    watchdog: RecordedProcess | None = msgspec.field(default=None, name="keeper")


T = TypeVar("T", bound=ProcessRecord)


class ProcessFiles(NamedTuple):
    """The files of a background process."""

    record: Path
    lock: Path
    log: Path
    """Also the output of its watchdog."""

    @classmethod
    def of(cls, folder: Path, name: str) -> ProcessFiles:
        """Returns the files of the daemon or the server in the lab's folder."""
        return cls(folder / f"{name}.json", folder / f"{name}.lock", folder / f"{name}.log")


def write_record(files: ProcessFiles, record: ProcessRecord) -> None:
    """Writes the record of this process, with its watchdog. The watchdog of the process before is ended, as
    it would start that one again.

    Raises:
        OSError: The record cannot be written.
    """
    before, own_watchdog = _read_record(files.record, _WatchdogRecord), _own_watchdog()
    former = before.watchdog if before is not None else None
    _write_record(files, record, own_watchdog)
    if former is not None and former != own_watchdog and former.runs_with(files.log):
        process_identity.send_signal(signal.SIGTERM, former.pid, former.start_ticks, former.boot_id)


def _write_record(files: ProcessFiles, record: ProcessRecord, watchdog: RecordedProcess | None) -> None:
    fields = {**msgspec.structs.asdict(record), "keeper": watchdog}
    durable.write(files.record, msgspec.json.encode(fields), mode=0o600)


def _own_watchdog() -> RecordedProcess | None:
    """Returns the parent of this process if it is a watchdog."""
    pid = os.getppid()
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    if os.fsencode(_WATCHDOG_COMMAND[-1]) not in line.split(b"\0"):
        return None
    return RecordedProcess.of_process(pid)


def open_watchdog() -> int | None:
    """Returns a descriptor that becomes readable when the watchdog of this process ends; None if there is
    none, or the system has no such descriptors."""
    found = _own_watchdog()
    if found is None or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(found.pid)
    except OSError:  # it has ended just now, or no descriptor is left
        return None


def become_watchdog(files: ProcessFiles, kind: type[T]) -> NoReturn:
    """Becomes the watchdog of a new process of the same command: that of this process was killed. The lock
    and all else that the new one needs must be released.

    By exec, which succeeds also where no process can be started; the children of this process stay its own,
    and are reaped.

    Args:
        files: Its files.
        kind: The type of its record.

    Raises:
        OSError: The program is missing, or no descriptor is left.
    """
    with contextlib.suppress(OSError):  # the disk of the log may be full
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        print(f"{now} its watchdog was killed: restarted under a new one", flush=True)
    if (record := _read_record(files.record, kind)) is not None:
        with contextlib.suppress(OSError):  # until the new process writes its record, `stop` finds this one
            _write_record(files, record, RecordedProcess.of_process(os.getpid()))
    no_starter = os.open(os.devnull, os.O_WRONLY)
    os.set_inheritable(no_starter, True)
    # The last argument is the descriptor that the watchdog has appended.
    os.execv(_WATCHDOG_COMMAND[0], [*_WATCHDOG_COMMAND, *sys.orig_argv[:-1], str(no_starter)])


def find_running(files: ProcessFiles, kind: type[T]) -> T | None:
    """Returns the record of the running process; None if there is none."""
    found = _read_record(files.record, kind)
    return found if found is not None and found.runs_with(files.lock) else None


S = TypeVar("S", bound=msgspec.Struct)


def _read_record(path: Path, kind: type[S]) -> S | None:
    try:
        return msgspec.json.decode(safe_read.read(path), type=kind)
    except (OSError, ValueError, RecursionError):  # a damaged record names no process
        return None


def lock(path: Path) -> int | None:
    """Takes the lock until the returned descriptor is closed; returns None if another process has it.

    Raises:
        OSError: The lock file cannot be opened.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


class Starter:
    """The command that started this process by `start` and waits until it is ready.

    Args:
        fd: The descriptor for the line of this process, as `start` passed it; None: no command waits.
    """

    def __init__(self, fd: int | None) -> None:
        # The watchdog passes no pipe to a process that it has restarted.
        self._fd = fd if fd is not None and stat.S_ISFIFO(os.fstat(fd).st_mode) else None

    def ready(self) -> None:
        """Reports that this process is ready. From here on its errors go to the log only."""
        if self._fd is not None:
            os.dup2(1, 2)
            self._send(self._fd, _READY)

    def failed(self, error: RoostError | OSError) -> int:
        """Reports why this process ends, on stderr if no command waits. Returns the exit code."""
        code = error.exit_code if isinstance(error, RoostError) else RoostError.exit_code
        if self._fd is None:
            with contextlib.suppress(OSError):  # the disk of the log may be full
                print(f"roost: {error}", file=sys.stderr, flush=True)
        else:
            self._send(self._fd, f"{json.dumps(_Failure.from_error(error))}\n".encode())
        return code

    def _send(self, fd: int, line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # the command has ended meanwhile
            os.write(fd, line)
        os.close(fd)
        self._fd = None


class _Failure(NamedTuple):
    """Why a process is not ready, as it reported itself."""

    what: str
    is_refusal: bool = False
    where: str | None = None
    fix: str | None = None

    @classmethod
    def from_error(cls, error: RoostError | OSError) -> _Failure:
        if isinstance(error, OSError):
            return cls(str(error))
        where = None if error.where is None else str(error.where)
        return cls(error.summary, isinstance(error, Refused), where, error.fix)

    def to_error(self, what: str, log: Path) -> RoostError:
        """Returns the error for the command that started it; a refusal stays a refusal with the same text.

        Args:
            what: The process, for people: ``the server``.
            log: The log, which may say more.
        """
        if self.is_refusal:
            return Refused(self.what, where=self.where, fix=self.fix)
        return RoostError(
            f"{what} did not start: {self.what}",
            where=self.where or log,
            fix=self.fix or "try again; its log may say more",
        )


def start(command: Sequence[str], log: Path, *, what: str, seconds: float) -> RoostError | None:
    """Starts a process that outlives this one, and waits until it is ready or has ended. Returns None if it
    is ready, else the error that says why not. From then on it is restarted whenever it is killed
    (`watchdog`).

    Args:
        command: The absolute path of a program, and its arguments; the number of the descriptor for its line
            is appended (`Starter`).
        log: Its output is appended there; readable by the owner only, and no link is followed.
        what: The process, for people: ``the server``.
        seconds: How long it may take to be ready.

    Raises:
        OSError: The log cannot be written, or no process can be started.
    """
    failed, was_killed = _start_once(command, log, seconds)
    if was_killed:  # whatever killed it may spare the second one
        failed, _ = _start_once(command, log, seconds)
    return None if failed is None else failed.to_error(what, log)


def _start_once(command: Sequence[str], log: Path, seconds: float) -> tuple[_Failure | None, bool]:
    """Returns why it is not ready, and whether it was killed."""
    import subprocess  # 5 ms, saved by commands that only look for a daemon

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
        line_read = b"" if is_late else line.readline()
    assert child.stderr is not None
    with child.stderr:
        if line_read == _READY:
            child.returncode = 0  # it outlives this process, which does not wait for its end
            return None, False
        if not is_late:  # it has closed its end of the pipe, so it is about to end
            with contextlib.suppress(subprocess.TimeoutExpired):  # then it is killed
                child.wait(_END_SECONDS)
        code = child.returncode
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        stderr = _read_stderr(child)
    if line_read:
        return _Failure(*json.loads(line_read)), False
    was_killed, how = False, f"it was not ready within {seconds:g} s" if is_late else ""
    if code is not None and code < 0:
        was_killed, how = True, f"it was killed by {status_name(code)}"
    return _Failure(": ".join(filter(None, [how, stderr])) or "it printed nothing"), was_killed


def _read_stderr(child: Any) -> str:
    """Returns what it wrote to stderr, which a child of it may still have open."""
    from subprocess import TimeoutExpired

    try:
        stderr = child.communicate(timeout=_STDERR_SECONDS)[1]
    except TimeoutExpired as error:
        stderr = error.stderr or b""
    return str(stderr, errors="replace").strip()


def stop(files: ProcessFiles, kind: type[T], what: str) -> T | None:
    """Ends the running process, or one that its watchdog is about to restart, and waits for its end. Returns
    its record; None if there was none.

    Args:
        files: Its files.
        kind: The type of its record.
        what: The process, for people: ``the server``.

    Raises:
        RoostError: It does not end.
    """
    found, with_watchdog = find_running(files, kind), _read_record(files.record, _WatchdogRecord)
    watchdog_process = with_watchdog.watchdog if with_watchdog is not None else None
    if watchdog_process is not None and not watchdog_process.runs_with(files.log):
        watchdog_process = None
    running = [one for one in (found, watchdog_process) if one is not None]
    if watchdog_process is not None:  # first, so that it restarts nothing
        process_identity.send_signal(
            signal.SIGTERM, watchdog_process.pid, watchdog_process.start_ticks, watchdog_process.boot_id
        )
    for one in running:
        end(one, what)
    return _read_record(files.record, kind) if running else None


def end(one: RecordedProcess, what: str) -> None:
    """Ends a process by SIGTERM and waits for its end.

    Args:
        one: The process.
        what: Its description for people: ``the server``.

    Raises:
        RoostError: It does not end.
    """
    process_identity.send_signal(signal.SIGTERM, one.pid, one.start_ticks, one.boot_id)
    deadline = time.monotonic() + _END_SECONDS
    while one.is_alive:
        if time.monotonic() > deadline:
            fix = f"kill -9 {one.pid}: nothing is lost"
            raise RoostError(f"{what} (pid {one.pid}) does not end", fix=fix)
        time.sleep(_TICK_SECONDS)
