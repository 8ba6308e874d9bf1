"""Processes of the machine, found by where they work: a worker, and all that it starts, in its package."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from roost.base.system import process_identity


def living_in(folder: Path) -> list[int]:
    """Every process whose working directory is the folder, or below it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # it has just ended, or is
            if entry.joinpath("cwd").readlink().is_relative_to(folder):  # none of ours
                found.append(int(entry.name))
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended, even if its exit status was not collected."""
    stat = process_identity.read_stat(pid)
    return stat is None or stat.ended


def marked(mark: str) -> list[int]:
    """Every living process with this text in its command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if mark.encode() in entry.joinpath("cmdline").read_bytes():  # a zombie has none
                found.append(int(entry.name))
    return found


def peak_mb(pid: int) -> float:
    """The most memory a process has had; 0 when it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        status = Path(f"/proc/{pid}/status").read_text()
        if "VmHWM:" in status:  # a zombie has none
            return int(status.split("VmHWM:")[1].split()[0]) / 1024
    return 0.0


def kill_all_in(folder: Path) -> None:
    """Ends whatever a test that failed has left, for the sake of the others: whole groups at once, because
    what forks all the time is never met twice under one pid."""
    for _ in range(100):
        groups = {group for pid in living_in(folder) if (group := _group_of(pid)) not in (0, os.getpgrp())}
        if not groups:
            break
        for group in groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
