"""Cards to be leased, and other processes that lease them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from roost.devices import lease, lease_files
from roost.devices.card import Card
from roost.devices.lease import LeaseHolder, Leases

IS_ROOT = os.geteuid() == 0
NOBODY, SOMEBODY = 65534, 4321
"""Two users, one of whom the system does not know."""
NEEDS_ROOT = pytest.mark.skipif(not IS_ROOT, reason="only root may become another user")


def card(number: int = 0, *, total_mb: int = 24576, id: str | None = None) -> Card:
    return Card(number, id or f"GPU-{number}", "RTX 4090", total_mb, total_mb)


def take(*cards: Card, mb: int | None = None, **how: Any) -> Leases:
    return lease.take(cards, mb, LeaseHolder.this_process("a task", "/runs/a"), **how)


def shared_root(tmp_path: Path) -> Path:
    """A folder for leases that other users reach, too."""
    for folder in takewhile(lambda one: one != Path(tempfile.gettempdir()), [tmp_path, *tmp_path.parents]):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o011)
    return lease_files.make_shared_folder(tmp_path / "leases")


class Child:
    """A forked process that does something, says that it is done, and waits to be let go.

    Args:
        what: Done by it; an exception of it ends the child with exit code 1.
        uid: Who it becomes before.
    """

    def __init__(self, what: Callable[[], object], *, uid: int | None = None) -> None:
        (ready, its_ready), (its_go, self._go) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ready)
            os.close(self._go)
            _be(what, uid, its_ready, its_go)
        os.close(its_ready)
        os.close(its_go)
        self.is_done = os.read(ready, 1) == b"1"
        os.close(ready)

    def end(self) -> int:
        """Lets it go; gives its exit code, or minus the signal that has ended it."""
        with suppress(BrokenPipeError):  # it has ended already
            os.write(self._go, b"1")
        os.close(self._go)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _be(what: Callable[[], object], uid: int | None, ready: int, go: int) -> None:
    code = 1
    try:
        if uid is not None:
            os.setgid(uid)
            os.setuid(uid)
        kept = what()
        os.write(ready, b"1")
        os.read(go, 1)
        del kept
        code = 0
    except BaseException as error:  # noqa: BLE001  - reported: then the child has failed
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(code)


def at_once(number: int, what: Callable[[int], object]) -> list[int]:
    """Does something in so many processes, each of which is given its number; gives their exit codes."""
    pids = []
    for own in range(number):
        if (pid := os.fork()) == 0:
            code = 1
            try:
                what(own)
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
