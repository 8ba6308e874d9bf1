"""Whether a command of the user ran out of memory: as it printed itself, or because the kernel killed it."""

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
"""Of the tail: what follows on the message are the last words of whatever has started the program."""
_OOM_KILL = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
_KILLED_STATUSES = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""The status of what was killed, and of a shell whose child was."""


class OomKills(NamedTuple):
    """How many processes the kernel has killed because memory had run out."""

    number: int
    are_own: bool
    """Whether they are of the session's own group; else of the whole machine."""


def count_oom_kills(group: str | None) -> OomKills:
    """Those until now; of the whole machine where the session has no group that tells.

    Args:
        group: The session's cgroup.
    """
    own = None if group is None else _read_oom_kills(f"{group}/memory.events")
    return OomKills(own, True) if own is not None else OomKills(_read_oom_kills("/proc/vmstat") or 0, False)


def is_killed_status(status: int) -> bool:
    """Whether a command of this status, or the one it ended by, was killed."""
    return status in _KILLED_STATUSES


def explain_out_of_memory(end: SessionOutcome, tail: list[str], before: OomKills | None, after: OomKills | None) -> SessionOutcome:
    """The same end, which says so where memory ran out.

    Args:
        end: Of a command that has failed or crashed.
        tail: What it printed last.
        before: What the kernel told when it began.
        after: And when it ended, if it was killed; else None.
    """
    if before is not None and after is not None and (number := after.number - before.number) > 0:
        if after.are_own and before.are_own:
            return _out_of_memory(end, "the machine", "the kernel killed it")
        processes = "a process" if number == 1 else f"{number} processes"
        return _out_of_memory(end, "the machine, probably", f"the kernel killed {processes} for that meanwhile")
    for line in reversed(tail[-_SEARCHED_LINES:]):
        if any(message in line for message in _CARD_MESSAGES):
            return _out_of_memory(end, "its card", line)
        if any(message in line for message in _HOST_MESSAGES):
            return _out_of_memory(end, "the machine", line)
    return end


def _out_of_memory(end: SessionOutcome, whose: str, how: str) -> SessionOutcome:
    told = (end.error or "").removesuffix(SIGKILL_HINT)
    return end._replace(error=f"out of memory of {whose}: {told}" + ("" if how in told else f"; {how}"))


def _read_oom_kills(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            found = _OOM_KILL.search(file.read())
    except OSError:  # an older kernel, or none of Linux
        return None
    return int(found[1]) if found is not None else None
