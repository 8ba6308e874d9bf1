"""What is said of a worker process that died, hangs, or raised."""

from __future__ import annotations

import re
import signal
import traceback
from typing import Any, NamedTuple

from roost.base.errors import TrainingError
from roost.base.exception_record import RemoteTraceback
from roost.train.data.workers.batch_codec import from_bytes, to_bytes

_WORKER_ENTRY = re.compile(r"data/workers/loader_worker\.py\", line \d+ in run_worker$")


class WorkerDied(TrainingError):
    """A worker process is gone or hangs. The data are not to blame for certain: a step may be skipped."""


_FIND_SAMPLE = "data.num_workers: 0 shows where"
_KILLED = (
    "was killed from outside, probably by the kernel because memory ran out",
    "fewer data.num_workers or smaller batches; `dmesg` tells whom the kernel killed",
)
_ORPHANED = (
    "ended with the thread that had started it",
    "draw the first batch in a thread that lives until the last one is drawn",
)
_BUS_ERROR = (
    "died of a bus error: a file that it had mapped became shorter, or memory ran out",
    _FIND_SAMPLE,
)
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)


def worker_died(
    worker: int, pid: int, exit_code: int | None, place: str, *, has_starter: bool = True
) -> WorkerDied:
    """The error about a worker that is gone.

    Args:
        worker: Its number.
        pid: Its process.
        exit_code: As Python gives it: below 0 it is a signal; None: somebody else in this process took it.
        place: What it was at, in words; may be empty.
        has_starter: Whether the thread that started it lives; the kernel kills a worker with that thread.
    """
    how, fix = _cause_and_fix(exit_code, has_starter)
    while_ = f" while it read {place}" if place else ""
    return WorkerDied(f"loader worker {worker} (pid {pid}) {how}{while_}", fix=fix)


def _cause_and_fix(exit_code: int | None, has_starter: bool) -> tuple[str, str]:
    if exit_code is None:
        return "is gone", _FIND_SAMPLE
    if exit_code >= 0:
        return f"ended itself with exit code {exit_code} (sys.exit or os._exit)", _FIND_SAMPLE
    number = -exit_code
    if number == signal.SIGKILL:
        return _KILLED if has_starter else _ORPHANED
    if number == signal.SIGBUS:
        return _BUS_ERROR
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number in _CRASHES:
        fix = f"{_FIND_SAMPLE}; often a library that cannot be forked, or a damaged sample"
        return f"crashed in compiled code ({name})", fix
    return f"was ended by {name}", _FIND_SAMPLE


def worker_hangs(worker: int, pid: int, seconds: float, place: str, stacks: str) -> WorkerDied:
    """The error about a worker that gets nowhere; its stacks are printed.

    Args:
        worker: Its number.
        pid: Its process.
        seconds: For so long.
        place: What it is at, in words; may be empty.
        stacks: Of its threads.
    """
    print(f"the stacks of loader worker {worker} (pid {pid}):\n{_worker_frames(stacks)}", flush=True)
    where = f" in {place}" if place else ""
    return WorkerDied(
        f"loader worker {worker} (pid {pid}) has got nowhere for {seconds:g} s{where}; its stacks are above",
        setting="data.loader_timeout",
        received=seconds,
        fix="look where it stands; if a sample may take so long, give it more time",
    )


def _worker_frames(stacks: str) -> str:
    """Without the frames from which the worker was forked: those of the training, the same each time."""
    lines, is_own = [], True
    for line in stacks.splitlines():
        is_frame = line.startswith("  File ")
        is_own = not is_frame or (is_own and not _WORKER_ENTRY.search(line))
        if is_own:
            lines.append(line)
    return "\n".join(lines)


def worker_not_started(worker: int, seconds: float) -> WorkerDied:
    """The error about a worker that could not be started."""
    return WorkerDied(
        f"loader worker {worker} did not start within {seconds:g} s, tried anew each time it hung",
        fix="data.num_workers: 0 needs no worker; something in this process holds a lock while it is forked",
    )


# --- an exception on its way --------------------------------------------------------------------------------


class _ExceptionParts(NamedTuple):
    """An exception of a class that is not made of what its objects keep: its ``__init__(self, path)`` says
    ``super().__init__(f"cannot read {path}")``."""

    kind: type[Exception]
    args: tuple[Any, ...]
    fields: dict[str, Any]

    def made(self) -> Exception:
        error = self.kind.__new__(self.kind, *self.args)
        error.args = self.args
        vars(error).update(self.fields)
        return error


EncodedException = tuple[Exception | _ExceptionParts, str]


def encode_exception(error: Exception) -> EncodedException:
    """The exception as pickle takes it, or one that says the same; and its traceback, as text."""
    text = "".join(traceback.format_exception(error))
    if _survives_pickle(error, error):
        return error, text
    bare = _ExceptionParts(type(error), error.args, vars(error))
    if _survives_pickle(bare, error):
        return bare, text
    said = RuntimeError(traceback.format_exception_only(error)[0].rstrip("\n"))
    for note in getattr(error, "__notes__", ()):
        said.add_note(str(note))
    return said, text


def _survives_pickle(sent: Exception | _ExceptionParts, error: Exception) -> bool:
    """Whether it is the same where it is read: many an exception can be written and not be read."""
    try:
        found = from_bytes(to_bytes(sent))
        found = found.made() if isinstance(found, _ExceptionParts) else found
        return type(found) is type(error) and str(found) == str(error)
    except Exception:  # noqa: BLE001  - whatever the class of an exception does when it is built anew
        return False


def decode_exception(sent: EncodedException, worker: int) -> Exception:
    """The exception that worker ``worker`` has sent; its traceback there is the cause."""
    error, text = sent
    if isinstance(error, _ExceptionParts):
        error = error.made()
    error.__cause__ = RemoteTraceback(text, f"in loader worker {worker}")
    return error
