"""What goes wrong in a run of several ranks: in one of them, at one place, once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

RANK = int(os.environ.get("RANK", "0"))


def _raises() -> None:
    raise ValueError(f"the fault of rank {RANK}")


def _sends(signum: signal.Signals) -> None:
    os.kill(_PID, signum)


def _out_of_disk() -> None:
    """No file of this process grows any further."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


_PID = os.getpid()  # of the rank, also in its loader workers
KINDS = {
    "raises": _raises,
    "exits": lambda: sys.exit(3),
    "leaves": lambda: os._exit(3),
    "is killed": lambda: _sends(signal.SIGKILL),
    "is stopped": lambda: _sends(signal.SIGTERM),
    "is paused": lambda: _sends(signal.SIGSTOP),
    "has no disk": _out_of_disk,
    "waits": lambda: time.sleep(600),
}


_WHEN = Path("fault").absolute()
"""In the package: it happens once in a run, so that the next session goes on."""


class Fault:
    """Happens when its place is reached often enough: ``where``, ``rank``, and ``at`` as the place counts.

    Args:
        settings: The run's ``fault``.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._where, self._what = settings["where"], settings["what"]
        self._rank, self._at = settings["rank"], settings["at"]
        if self._where == "written":  # a file of a checkpoint is opened by the thread that writes it
            sys.addaudithook(self._note_open)

    def may_happen(self, where: str, at: int) -> None:
        """Called at each place, with its count."""
        if self.is_here(where, at):
            self._happen()

    def is_here(self, where: str, at: int) -> bool:
        """Whether it happens at this place."""
        return (where, RANK, at) == (self._where, self._rank, self._at)

    def _happen(self) -> None:
        if not _WHEN.exists():
            _WHEN.write_text(str(time.time()))
            KINDS[self._what]()

    def _note_open(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and self._where == "written" and self._rank == RANK:
            name = Path(os.fsdecode(arguments[0])).name if not isinstance(arguments[0], int) else ""
            if name.startswith(f"rank-{RANK}."):
                self._happen()


class Reverses(torch.autograd.Function):
    """Gives what it gets; its backward may fail."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, fault: Fault, at: int) -> torch.Tensor:
        ctx.fault, ctx.at = fault, at
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        ctx.fault.may_happen("backward", ctx.at)
        return gradients[0], None, None
