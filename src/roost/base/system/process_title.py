"""The title of a process: what ``ps``, ``htop`` and ``nvidia-smi`` show of it.

Linux shows the memory into which the kernel has copied the arguments of the program. Nothing else reads it:
Python has its own copies in ``sys.argv`` and ``sys.orig_argv``. A title that is written there is at most as
long as the command was.
"""

# Standard library only

from __future__ import annotations

import ctypes
import functools
import os
from typing import NamedTuple

from roost.base.system import prctl

TITLE_ROOM = " " * 300
"""The last argument of a process that needs room for a longer title than its command."""
_ARG_START, _ENV_END = 45, 48
"""The places of the addresses in /proc/self/stat, counted after the name of the program."""


class DisplayedMemory(NamedTuple):
    """The addresses at which /proc reads the arguments of this process, and its environment."""

    arguments: int
    arguments_end: int
    environment: int
    environment_end: int


@functools.cache  # a forked child has the same addresses
def displayed_memory() -> DisplayedMemory | None:
    """Returns where /proc reads; None where the system does not say so."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    found = DisplayedMemory(*map(int, fields[_ARG_START : _ENV_END + 1]))
    return found if found.arguments and found.environment else None


def set_title(role: str, package: str = "") -> None:
    """Sets the title of this process to "roost: ROLE NAME", and the name of its main thread to the beginning
    of that. Does nothing on systems other than Linux.

    Args:
        role: What the process does.
        package: The path of the package for which it does so; only its name is shown.
    """
    memory = displayed_memory()
    if memory is None:
        return
    title = os.fsencode(f"roost: {role} {os.path.basename(package)}".rstrip())  # noqa: PTH119
    size = memory.arguments_end - memory.arguments
    # The last byte stays zero: with another one, the kernel would show the environment as well.
    ctypes.memmove(memory.arguments, title[: size - 1].ljust(size, b"\0"), size)
    prctl.set_thread_name(title)
