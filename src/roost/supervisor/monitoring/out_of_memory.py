"""Finds out whether a command of the user ran out of memory: from its output, or because the kernel killed
it."""

# Standard library only

from __future__ import annotations

import re
import signal
from typing import NamedTuple

from roost.supervisor.exit_status import SIGKILL_HINT, SessionOutcome

_CARD_MESSAGES = (
    "CUDA out of memory", "CUDA error: out of memory", "CUDA_ERROR_OUT_OF_MEMORY", "OutOfMemoryError:",
    "RESOURCE_EXHAUSTED: Out of memory",
)  # fmt: skip
_HOST_MESSAGES = ("MemoryError", "std::bad_alloc", "can't allocate memory", "Cannot allocate memory")
_SEARCHED_LINES = 30
"""Of the last lines: the messages of programs that started the failing one may follow on its own."""
_OOM_KILL = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
_KILLED_STATUSES = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""The status of a killed process, and of a shell whose child was killed."""


class OomKills(NamedTuple):
    """How many processes the kernel has killed because memory had run out."""

    number: int
    are_own: bool
    """Whether the kills are of the session's own cgroup; else of the whole machine."""


def count_oom_kills(group: str | None) -> OomKills:
    """Returns the kills until now; of the whole machine if the session has no cgroup that counts them.

    Args:
        group: The session's cgroup.
    """
    own = None if group is None else _read_oom_kills(f"{group}/memory.events")
    return OomKills(own, True) if own is not None else OomKills(_read_oom_kills("/proc/vmstat") or 0, False)


def is_killed_status(status: int) -> bool:
    """Whether a command with this status, or its last child, was killed."""
    return status in _KILLED_STATUSES


def explain_out_of_memory(
    end: SessionOutcome, tail: list[str], before: OomKills | None, after: OomKills | None
) -> SessionOutcome:
    """Returns the outcome, with an error that says so if memory ran out.

    Args:
        end: The outcome of a command that has failed or crashed.
        tail: The last lines of its output.
        before: The kernel's count when the command started.
        after: The kernel's count when it ended, if it was killed; else None.
    """
    if before is not None and after is not None and (number := after.number - before.number) > 0:
        if after.are_own and before.are_own:
            return _out_of_memory(end, "the machine", "the kernel killed it")
        processes = "a process" if number == 1 else f"{number} processes"
        return _out_of_memory(
            end, "the machine, probably", f"the kernel killed {processes} for that meanwhile"
        )
    for line in reversed(tail[-_SEARCHED_LINES:]):
        if any(message in line for message in _CARD_MESSAGES):
            return _out_of_memory(end, "its card", line)
        if any(message in line for message in _HOST_MESSAGES):
            return _out_of_memory(end, "the machine", line)
    return end


def _out_of_memory(end: SessionOutcome, whose: str, how: str) -> SessionOutcome:
    error = (end.error or "").removesuffix(SIGKILL_HINT)
    return end._replace(error=f"out of memory of {whose}: {error}" + ("" if how in error else f"; {how}"))


def _read_oom_kills(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            found = _OOM_KILL.search(file.read())
    except OSError:  # an old kernel, or not Linux
        return None
    return int(found[1]) if found is not None else None
