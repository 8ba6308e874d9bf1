"""The program that watches over one session: starts the worker, belongs to nobody, leaves nobody behind.

Started as ``python -I -S supervisor.py`` in its own session, with one `Spec` as JSON on stdin (`lab.start`
does it). Standard library only, and little of it: every import is paid before the run begins. The heavier
half (pathlib, hashlib: about 10 ms) is imported after the worker was forked, while that one loads itself.

It lives as long as the worker and everything the worker started. If it is itself killed, the kernel kills
the worker; a reader then finds ``state: running`` with a supervisor that is gone, which reads as crashed.
On macOS there is neither a child subreaper nor a signal at the parent's death: there both are best effort.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # -I -S: neither site-packages nor this folder are on the path
    sys.path.insert(0, __file__.rsplit(os.sep, 3)[0])

import json
import resource
import select
import signal
import time
from collections import deque
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from roost.base import process
from roost.base.errors import INTERRUPTED_EXIT_CODE, STOPPED_EXIT_CODE
from roost.lab.tree import descendants, kill_tree

REPORT_VARIABLE = "ROOST_REPORT_FD"
SESSION_FORMAT = 1

_STATES = ("succeeded", "failed", "stopped")
_MAX_REPORT_BYTES = 1 << 20
_LISTENED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Spec(NamedTuple):
    """What to run and where to write it down. All paths are absolute.

    A named tuple, because the dataclasses module would cost every start 7 ms.
    """

    argv: list[str]
    cwd: str
    env: dict[str, str]
    """The complete environment of the worker; ``ROOST_REPORT_FD`` is added."""
    package: str
    session: int
    output: str
    session_file: str
    lock_fd: int | None = None
    """An inherited descriptor that holds the package's flock; None for what takes no lock."""
    ready_fd: int | None = None
    """Gets one byte ``1`` when the session is recorded and the worker started."""

    def to_json(self) -> str:
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str | bytes) -> Spec:
        """Raises ValueError or TypeError if the text is no spec."""
        return cls(**json.loads(text))


class Ending(NamedTuple):
    """How a session ended, as ``sessions/<n>.json`` tells it."""

    state: str
    exit_code: int
    reason: str
    error: str | None


def ending(report: bytes, worker_status: int, *, asked_to_stop: bool, killed: bool) -> Ending:
    """Judges a session by the worker's final line, and without one by what is known from outside.

    Args:
        report: All that came through the report pipe.
        worker_status: The worker's exit code, or minus the signal that ended it.
        asked_to_stop: Whether SIGTERM was passed on to it.
        killed: Whether the tree was killed on request.
    """
    said = _final_line(report)
    if said is not None:
        return said
    if killed:
        return Ending("stopped", INTERRUPTED_EXIT_CODE, "killed", None)
    if asked_to_stop and worker_status == -signal.SIGTERM:
        # It was still loading and had no handler yet: nothing was begun, so nothing is lost.
        return Ending("stopped", STOPPED_EXIT_CODE, "signal", None)
    if worker_status < 0:
        return Ending("crashed", 1, "signal", f"killed by {_status_name(worker_status)}")
    # A code to which roost gives a meaning must not claim it for a worker that did not say so.
    claims = worker_status in (0, STOPPED_EXIT_CODE, INTERRUPTED_EXIT_CODE)
    error = f"exited with {worker_status} before the run had ended"
    return Ending("crashed", 1 if claims else worker_status, "exit", error)


def _final_line(report: bytes) -> Ending | None:
    """The last line that means something; the pipe is open to all of the worker's code."""
    for line in reversed(report.splitlines()):
        try:
            said = json.loads(line)
            found = Ending(said["state"], said["exit_code"], said["reason"], said["error"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        typed = isinstance(found.exit_code, int) and isinstance(found.reason, str)
        if typed and found.state in _STATES and isinstance(found.error, str | None):
            return found
    return None


def _status_name(worker_status: int) -> int | str:
    if worker_status >= 0:
        return worker_status
    try:
        return signal.Signals(-worker_status).name
    except ValueError:  # a real-time signal without a name
        return f"signal {-worker_status}"


class Supervisor:
    """One session, from the worker's start to the last of its descendants.

    ::

        adopt orphans, listen to signals
        start the worker
        record "running"; tell the operation
        until the worker has ended: wait for a signal or a word of the worker
            SIGTERM, SIGINT     ask the worker to stop; again: nothing more, it is saving
            SIGQUIT             kill everything
        kill and reap whatever it left behind
        record the end
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._arrived: deque[int] = deque()
        self._wakeup_fd = -1
        self._output_fd = -1
        self._report_fd = -1
        self._report = b""
        self._worker_pid = 0
        self._worker_status: int | None = None
        self._asked_to_stop = self._killed = False
        self._record: dict[str, Any] = {}
        self._started_monotonic = time.monotonic()

    def run(self) -> int:
        """Runs the session; gives the exit code. Raises OSError if it cannot be started or recorded."""
        self._listen()
        _adopt_orphans()
        self._start_worker()
        try:
            self._record_start()
        except BaseException:
            kill_tree(os.getpid(), include_root=False)
            raise
        self._announce()
        self._wait()
        self._end_leftovers()
        return self._record_end()

    def _listen(self) -> None:
        for fd in (self.spec.lock_fd, self.spec.ready_fd):
            if fd is not None:
                os.set_inheritable(fd, False)
        self._wakeup_fd, write_fd = os.pipe()
        for fd in (self._wakeup_fd, write_fd):
            os.set_blocking(fd, False)
        # The byte only wakes the poll; the handler keeps what came, so a full pipe loses nothing.
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for signum in _LISTENED:
            signal.signal(signum, self._note_signal)
        # The worker inherits this one: a session that logs out sends SIGHUP beside SIGTERM, and must not
        # cut off the saving that SIGTERM began.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _note_signal(self, signum: int, frame: FrameType | None) -> None:
        self._arrived.append(signum)

    def _start_worker(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        # A FIFO of that name would hold us here, and with us the lock, until somebody reads it.
        self._output_fd = os.open(self.spec.output, flags | os.O_NONBLOCK, 0o644)
        os.set_blocking(self._output_fd, True)
        self._report_fd, report_fd = os.pipe()
        os.set_blocking(self._report_fd, False)
        if sys.platform == "linux":
            _prctl()  # loads ctypes once, here and not in the child
        supervisor_pid = os.getpid()
        # A signal between fork and exec must find the default action, not the copy of our handler.
        signal.pthread_sigmask(signal.SIG_BLOCK, _LISTENED)
        self._worker_pid = os.fork()
        if self._worker_pid == 0:
            _become_worker(self.spec, supervisor_pid, output_fd=self._output_fd, report_fd=report_fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(report_fd)

    def _record_start(self) -> None:
        self._record = {
            "format": SESSION_FORMAT,
            "session": self.spec.session,
            "state": "running",
            "host": os.uname().nodename,
            "boot_id": process.boot_id(),
            "pid": os.getpid(),
            "start_ticks": process.start_ticks(os.getpid()),
            "worker_pid": self._worker_pid,
            "started": time.time(),
        }
        self._write_record()

    def _write_record(self) -> None:
        from pathlib import Path

        from roost.base import durable

        durable.write(Path(self.spec.session_file), self._record_text())

    def _record_text(self) -> bytes:
        return json.dumps(self._record, indent=1, allow_nan=False).encode() + b"\n"

    def _announce(self) -> None:
        # From now on nobody reads our stderr: a defect of the supervisor is told in the output.
        os.dup2(self._output_fd, 1, inheritable=False)
        os.dup2(self._output_fd, 2, inheritable=False)
        if self.spec.ready_fd is None:
            return
        try:
            os.write(self.spec.ready_fd, b"1")
        except BrokenPipeError:  # whoever started us is gone; the run goes on all the same
            return
        finally:
            os.close(self.spec.ready_fd)

    def _wait(self) -> None:
        poller = select.poll()
        poller.register(self._wakeup_fd, select.POLLIN)
        poller.register(self._report_fd, select.POLLIN)
        while self._worker_status is None:
            for fd, _ in poller.poll():
                if fd == self._wakeup_fd:
                    os.read(fd, 4096)
                elif self._read_report() == 0:
                    poller.unregister(fd)  # all of its writers closed it, it would wake us for ever
            self._handle_signals()

    def _handle_signals(self) -> None:
        while self._arrived:
            signum = self._arrived.popleft()
            if signum == signal.SIGCHLD:
                self._reap()
            elif self._worker_status is not None:
                continue  # too late: it has ended already
            elif signum == signal.SIGQUIT:
                self._killed = True
                kill_tree(os.getpid(), include_root=False, on_reaped=self._note_end)
            elif not self._asked_to_stop:  # asked twice (a second `roost stop`), it must not lose its save
                self._asked_to_stop = True
                os.kill(self._worker_pid, signal.SIGTERM)
                os.kill(self._worker_pid, signal.SIGCONT)  # one that is paused could not answer

    def _reap(self) -> None:
        """Takes the exit status of every child that ended, adopted orphans too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._note_end(pid, status)

    def _note_end(self, pid: int, status: int) -> None:
        if pid == self._worker_pid and self._worker_status is None:
            self._worker_status = os.waitstatus_to_exitcode(status)
            self._record["ended"] = time.time()
            self._record["seconds"] = round(time.monotonic() - self._started_monotonic, 3)

    def _read_report(self) -> int:
        """Takes what the worker wrote; gives the number of bytes, 0 at the end of the pipe."""
        chunk = os.read(self._report_fd, 1 << 16)
        self._report = (self._report + chunk)[-_MAX_REPORT_BYTES:]
        return len(chunk)

    def _end_leftovers(self) -> None:
        """After this nobody but us holds the lock."""
        kill_tree(os.getpid(), include_root=False)
        if sys.platform != "linux":
            kill_tree(self._worker_pid, include_root=True)
        self._reap()
        left = descendants(os.getpid())
        if left:
            self._say(f"these processes could not be ended and may still write: {left}")
        try:
            while self._read_report():
                continue
        except BlockingIOError:  # one of those still holds the pipe
            return

    def _record_end(self) -> int:
        assert self._worker_status is not None
        end = ending(
            self._report, self._worker_status, asked_to_stop=self._asked_to_stop, killed=self._killed
        )
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        per_mb = 1024 if sys.platform == "linux" else 1024 * 1024
        self._record |= end._asdict()
        self._record["worker_status"] = _status_name(self._worker_status)
        self._record["peak_memory_mb"] = round(peak / per_mb, 1)
        try:
            self._write_record()
        except OSError as error:
            self._say(f"the end of this session ({end.state}, {end.reason}) could not be recorded: {error}")
            self._overwrite_record()
        return end.exit_code

    def _overwrite_record(self) -> None:
        """On a full disk: into the block that the record of the start has already."""
        from pathlib import Path

        from roost.base import durable

        try:
            durable.overwrite(Path(self.spec.session_file), self._record_text())
        except OSError as error:
            self._say(f"nor in place: {error}")

    def _say(self, text: str) -> None:
        """A line at the tail of the output."""
        try:
            os.write(self._output_fd, f"\nroost: {text}\n".encode())
        except OSError:  # the disk that refuses the record may refuse this too; the exit code still tells
            return


def _prctl() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True).prctl


def _adopt_orphans() -> None:
    """Makes us the parent of every descendant whose own parent ends."""
    if sys.platform == "linux" and _prctl()(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("this kernel refuses PR_SET_CHILD_SUBREAPER, without which processes would leak")


def _become_worker(spec: Spec, supervisor_pid: int, *, output_fd: int, report_fd: int) -> NoReturn:
    """What the forked child does; every signal that is listened to is blocked when it comes here."""
    try:
        if sys.platform == "linux":
            _prctl()(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != supervisor_pid:  # it died before the line above: no signal will come
            os._exit(1)
        os.setsid()  # so that code that signals its own group does not hit the supervisor
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output_fd, 1)
        os.dup2(output_fd, 2)
        for fd in (report_fd, spec.lock_fd):
            if fd is not None:
                os.set_inheritable(fd, True)
        for signum in (*_LISTENED, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(spec.cwd)
        os.execvpe(spec.argv[0], spec.argv, {**spec.env, REPORT_VARIABLE: str(report_fd)})
    except (OSError, ValueError) as error:
        text = f"the worker could not be started: {error}"
        line = {"state": "failed", "exit_code": 1, "reason": "start", "error": text}
        os.write(report_fd, json.dumps(line).encode() + b"\n")
    finally:
        os._exit(127)


def main() -> int:
    """Reads the spec, runs the session, gives its exit code."""
    try:
        if os.getsid(0) != os.getpid():
            os.setsid()
        spec = Spec.from_json(sys.stdin.buffer.read())
        return Supervisor(spec).run()
    except (OSError, ValueError, TypeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
