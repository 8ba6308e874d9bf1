"""Breakpoints in the project's code: they stop only on the terminal that ``--pdb`` gave to the run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from roost.base.errors import Refused
from roost.base.traceback_frames import ProjectFiles

_FIX = "start it with --pdb (roost run --pdb, roost continue --pdb), or remove the breakpoint"


class Debugger:
    """Handles ``breakpoint()``, and opens pdb at the line that raised an error.

    Args:
        has_terminal: Whether stdin and stdout of this process are the user's terminal.
    """

    def __init__(self, *, has_terminal: bool) -> None:
        self._has_terminal, self._pid = has_terminal, os.getpid()
        self._python = sys.breakpointhook
        sys.breakpointhook = self._stop

    def _stop(self, *arguments: Any, **named: Any) -> Any:
        if os.environ.get("PYTHONBREAKPOINT") == "0":
            return None
        frame = sys._getframe(1)
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if not self._has_terminal:
            raise Refused("breakpoint() was called without a terminal", where=where, fix=_FIX)
        if os.getpid() != self._pid:
            raise Refused(
                "breakpoint() was called in a loader worker, which has no terminal",
                where=where,
                fix="set data.num_workers to 0",
            )
        if os.environ.get("PYTHONBREAKPOINT"):  # the user's own debugger; it stops here, one frame too deep
            return self._python(*arguments, **named)
        import pdb  # noqa: T100  - a stop was requested

        return pdb.Pdb().set_trace(frame)

    def was_quit(self, error: BaseException) -> bool:
        """Whether ``error`` only comes from `q` in pdb."""
        bdb = sys.modules.get("bdb")
        return self._has_terminal and bdb is not None and isinstance(error, bdb.BdbQuit)

    def inspect_error(self, error: BaseException, package: Path) -> None:
        """Opens pdb at the line of the package that raised ``error``, if there is a terminal; `q` leaves
        it."""
        if self._has_terminal:
            from roost.worker.debug import post_mortem  # imports torch, which an early error does without

            post_mortem.inspect_error(error, ProjectFiles([package]))
