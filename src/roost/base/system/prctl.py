"""What a process may have the kernel of Linux do for it, by the system call prctl(2)."""

# Standard library only

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
_NAME_BYTES = 15


@functools.cache
def system_call() -> Any:
    """Returns the system call. A process calls this before it forks, so that its children have it loaded."""
    return ctypes.CDLL(None, use_errno=True).prctl


def set_parent_death_signal(signum: int) -> None:
    """Has the kernel send this signal to this process when the thread that forked it ends."""
    if sys.platform == "linux":
        system_call()(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)


def set_child_subreaper(is_subreaper: bool) -> None:
    """Makes this process the parent of every descendant whose own parent ends, or undoes that.

    Raises:
        OSError: The kernel refuses.
    """
    if sys.platform == "linux" and system_call()(_PR_SET_CHILD_SUBREAPER, int(is_subreaper), 0, 0, 0) != 0:
        raise OSError("this kernel refuses PR_SET_CHILD_SUBREAPER, without which processes would leak")


def set_thread_name(name: bytes) -> None:
    """Sets the name of this thread, which is cut to 15 bytes."""
    if sys.platform == "linux":
        system_call()(_PR_SET_NAME, name[:_NAME_BYTES], 0, 0, 0)
