"""The protocol of executors, which start attempts and report their status: this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from roost.devices.card import Card
from roost.lab.memory.memory_use import MemoryUse
from roost.lab.queue.task import Task


class AttemptStatus(NamedTuple):
    """The status of an attempt."""

    state: str
    """A state of a task: starting, running, or ended; pending: it never started."""
    session: int | None = None
    """The number of its session in the package."""
    reason: str = ""
    """Why it ended, in one line."""
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    is_lost: bool = False
    """Whether it is a lost attempt: ended by no fault of its own, as the machine went down or its supervisor
    was killed."""
    lost_in_a_row: int = 0
    """How many attempts in a row have ended by no fault of their own and saved no checkpoint."""
    stuck: str = ""
    """Why another attempt would get no further (`roost.supervisor.attempt_progress`); empty: it may."""
    memory: MemoryUse | None = None
    """Its memory use on its cards, if it was measured."""
    host_peak_mb: float | None = None
    """The most memory of the machine that its processes used together, as far as sampled; shared pages count
    for each process."""


NEVER_STARTED = AttemptStatus("pending")
"""No session of the attempt exists, and none will be started."""
INTERRUPTED_START = AttemptStatus(
    "pending", reason="the processes that supervise it were killed during its start", is_lost=True
)
"""The session of the attempt was added to the package, and none of its processes exists any more."""


class Executor(Protocol):
    """Starts tasks on one kind of machine. A started attempt outlives this object, and any other executor of
    the kind can report on it."""

    def start(self, task: Task, cards: Sequence[Card]) -> Callable[[], None]:
        """Starts the current attempt of a task. Returns a function that waits until the attempt has started;
        it is called once, possibly after other starts. `poll` gives the number of the session.

        Raises:
            Refused: Another process has taken the cards, or writes to the package.
            RoostError: The attempt could not be started, and nothing of it remains. The returned function
                raises the same errors.
            OSError: The same, because of the system.
        """

    def poll(self, task: Task) -> AttemptStatus:
        """Returns the status of the newest attempt."""

    def watch(self, task: Task) -> int | None:
        """Returns a descriptor that becomes readable when the attempt has ended, for the caller to close;
        None if there is none: then the attempt has to be polled."""

    def request_stop(self, task: Task, *, now: bool) -> None:
        """Requests the attempt to save and end, or ends it at once; does nothing if it does not run.

        Raises:
            RoostError: The attempt cannot be reached.
        """
