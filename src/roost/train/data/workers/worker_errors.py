"""Errors about loader workers that died, hang or could not start, and the transport of their exceptions."""

from __future__ import annotations

import re
import signal
import traceback
from typing import Any, NamedTuple

from roost.base.errors import TrainingError
from roost.base.exception_record import RemoteTraceback
from roost.train.data.workers.batch_codec import from_bytes, to_bytes

_WORKER_ENTRY = re.compile(r"workers/loader_worker\.py\", line \d+ in run_worker$")


class WorkerDied(TrainingError):
    """A loader worker is dead or hangs. The data may not be the cause, so a step may be skipped."""


_FIND_SAMPLE = "set data.num_workers: 0 to see where"
_KILLED = (
    "was killed from outside, probably by the kernel because memory ran out",
    "use fewer data.num_workers or smaller batches; `dmesg` shows which process the kernel killed",
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
    worker: int, pid: int, exit_code: int | None, sample: str, *, has_starter: bool = True
) -> WorkerDied:
    """Returns the error about a worker that has ended.

    Args:
        worker: Number of the worker.
        pid: Its process.
        exit_code: As in multiprocessing: negative for a signal; None: other code in this process has read it.
        sample: The sample that it read, for the message; may be empty.
        has_starter: Whether the thread that started it is alive; the kernel kills a worker with that thread.
    """
    how, fix = _cause_and_fix(exit_code, has_starter)
    while_ = f" while it read {sample}" if sample else ""
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
        fix = f"{_FIND_SAMPLE}; often the cause is a library that cannot be forked, or a damaged sample"
        return f"crashed in compiled code ({name})", fix
    return f"was ended by {name}", _FIND_SAMPLE


def worker_hangs(worker: int, pid: int, seconds: float, sample: str, stacks: str) -> WorkerDied:
    """Returns the error about a worker without progress, and prints its stacks.

    Args:
        worker: Number of the worker.
        pid: Its process.
        seconds: Time without progress.
        sample: The sample that it reads, for the message; may be empty.
        stacks: The stacks of its threads, as text.
    """
    print(f"the stacks of loader worker {worker} (pid {pid}):\n{_worker_frames(stacks)}", flush=True)
    where = f" in {sample}" if sample else ""
    return WorkerDied(
        f"loader worker {worker} (pid {pid}) has made no progress for {seconds:g} s{where}; "
        "its stacks are above",
        setting="data.loader_timeout",
        received=seconds,
        fix="find the blocking call in the stacks; if a sample may take so long, increase the timeout",
    )


def _worker_frames(stacks: str) -> str:
    """Drops the frames below the worker's main function: those of the training at the moment of the fork."""
    lines, is_own = [], True
    for line in stacks.splitlines():
        is_frame = line.startswith("  File ")
        is_own = not is_frame or (is_own and not _WORKER_ENTRY.search(line))
        if is_own:
            lines.append(line)
    return "\n".join(lines)


def worker_not_started(worker: int, seconds: float) -> WorkerDied:
    """Returns the error about a worker that could not be started."""
    return WorkerDied(
        f"loader worker {worker} did not start within {seconds:g} s, in several attempts",
        fix="set data.num_workers: 0; a thread of this process holds a lock at each fork",
    )


# --- sending an exception -----------------------------------------------------------------------------------


class _ExceptionParts(NamedTuple):
    """The parts of an exception whose class cannot be called with the ``args`` of its objects, for example
    because its ``__init__(self, path)`` calls ``super().__init__(f"cannot read {path}")``."""

    kind: type[Exception]
    args: tuple[Any, ...]
    fields: dict[str, Any]

    def rebuild(self) -> Exception:
        error = self.kind.__new__(self.kind, *self.args)
        error.args = self.args
        vars(error).update(self.fields)
        return error


EncodedException = tuple[Exception | _ExceptionParts, str]


def encode_exception(error: Exception) -> EncodedException:
    """Returns the exception in a form for pickle, or one with the same text; and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    if _survives_pickle(error, error):
        return error, text
    parts = _ExceptionParts(type(error), error.args, vars(error))
    if _survives_pickle(parts, error):
        return parts, text
    substitute = RuntimeError(traceback.format_exception_only(error)[0].rstrip("\n"))
    for note in getattr(error, "__notes__", ()):
        substitute.add_note(str(note))
    return substitute, text


def _survives_pickle(sent: Exception | _ExceptionParts, error: Exception) -> bool:
    """Whether pickle restores the same exception: some classes can be pickled, but not unpickled."""
    try:
        found = from_bytes(to_bytes(sent))
        found = found.rebuild() if isinstance(found, _ExceptionParts) else found
        return type(found) is type(error) and str(found) == str(error)
    except Exception:  # noqa: BLE001  - the class of the exception may run any code when it is restored
        return False


def decode_exception(sent: EncodedException, worker: int) -> Exception:
    """Returns the exception that a loader worker has sent; its ``__cause__`` has the traceback there."""
    error, text = sent
    if isinstance(error, _ExceptionParts):
        error = error.rebuild()
    error.__cause__ = RemoteTraceback(text, f"in loader worker {worker}")
    return error
