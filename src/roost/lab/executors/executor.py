"""What starts tasks, and is asked what has become of them: the machine itself, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from roost.devices.card import Card
from roost.lab.memory.memory_use import MemoryUse
from roost.lab.queue.task import Task


class AttemptStatus(NamedTuple):
    """What has become of an attempt."""

    state: str
    """As of a task: starting, running, or ended."""
    session: int | None = None
    """The package's session that it is now."""
    reason: str = ""
    """Of one that has ended: why, in a line."""
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    is_accident: bool = False
    """Whether it ended by no fault of its own: the machine went down, or somebody killed what watched over
    it."""
    in_vain: int = 0
    """How many attempts in a row have ended by no fault of their own, and saved nothing."""
    taken: MemoryUse | None = None
    """What it took of its cards, if that was measured."""


NEVER_STARTED = AttemptStatus("pending")
"""Nothing of the attempt is there, and nothing will come any more."""


class Executor(Protocol):
    """One kind of place where tasks run. What it starts belongs to nobody: it outlives this object, and any
    other one of its kind can be asked about it."""

    def start(self, task: Task, cards: Sequence[Card]) -> Callable[[], None]:
        """Starts the attempt that ``task`` tells of; gives what waits until it stands. That is to be called
        once; others may be started before. Which session it is tells `poll`.

        Raises:
            Refused: Somebody else has taken the cards, or writes to the package.
            RoostError: It could not be started; nothing of it is left. Both raise this.
            OSError: Likewise.
        """

    def poll(self, task: Task) -> AttemptStatus:
        """What has become of its newest attempt."""

    def watch(self, task: Task) -> int | None:
        """A descriptor that becomes readable when the attempt has ended, which the caller closes; None where
        there is none: then it is to be asked from time to time."""

    def ask(self, task: Task, *, now: bool) -> None:
        """Asks it to save and end, or ends it at once; nothing if it does not run.

        Raises:
            RoostError: It cannot be reached.
        """
