"""Where a session waits to be ended: before a step, or while it reads a sample."""

from __future__ import annotations

import os
import time
from pathlib import Path

import roost

WAITING, GO = "waiting", "go"
"""Files in the package: the first holds the process that waits, the second lets it go on."""


def wait_here() -> None:
    """Leaves word of this process, and waits to be killed or let go."""
    written = Path(f"{WAITING}.{os.getpid()}")  # several workers may come here at once
    written.write_text(str(os.getpid()))
    written.rename(WAITING)
    deadline = time.monotonic() + 60
    while not Path(GO).exists():
        assert time.monotonic() < deadline, "no test answered"
        time.sleep(0.001)


class Reads:
    """Waits while a process reads its ``at``-th sample; never when that is None."""

    def __init__(self, at: int | None) -> None:
        self.left = at

    def __call__(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                wait_here()


class Halt(roost.Hook):
    """Saves at the edge of each epoch, a step before and a step after; waits before the step that follows
    ``halt.step``, a number or one of these three."""

    phase, every = roost.Phase.SCHEDULE, "1"

    def on_step(self, trainer: roost.Trainer) -> None:
        if trainer.progress.step % trainer.steps_per_epoch in (trainer.steps_per_epoch - 1, 0, 1):
            trainer.request_save()

    def before_step(self, trainer: roost.Trainer) -> None:
        at, edge, step = self.args["halt"]["step"], trainer.steps_per_epoch, trainer.progress.step
        exact = {"before": edge - 1, "edge": edge, "after": edge + 1}
        if at is not None and (step == exact[at] if at in exact else step >= at):
            wait_here()
