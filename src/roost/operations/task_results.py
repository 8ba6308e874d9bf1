"""The result types of `tasks` and `why`: the rows of tasks and sweeps, and the explanation of a state.

Their readers, such as the client, need not import the operations.
"""

from __future__ import annotations

import os.path

import msgspec

from roost.lab.policy.reason_codes import HELD
from roost.lab.queue.task import CRASHED, ENDED, FAILED, LIVE, PENDING
from roost.package.kinds import TaskKind


class TaskRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A task in the list of `roost tasks`."""

    id: str
    short: str
    """The shortest unique prefix of the id."""
    label: str
    """The letter of its kind and its number in the queue: ``T_12``."""
    name: str
    kind: str
    """One of `roost.package.kinds.TASK_KINDS`: train, command, analyze or predict."""
    package: str
    session_folder: str
    """The folder of a task that only reads the package; empty: the package itself."""
    user: str
    state: str
    reason: str
    """Why the task is pending, or did not succeed."""
    priority: int
    held: bool
    after: tuple[str, ...]
    """Ids of tasks that must succeed first."""
    after_any: tuple[str, ...]
    """Ids of tasks that must end first, with any outcome."""
    sweep: str | None
    """The id of its sweep."""
    sweep_name: str | None
    """The name of the sweep; None: derived from the names of its tasks."""
    num_cards: int
    cores: int | None
    """CPU cores that the task requests; None: a task without cards counts as one; 0: it counts as none."""
    host_memory_mb: int | None
    """Memory of the host that the task requests; None: none is kept for it."""
    memory_mb: int | None
    """Memory of each card: reserved, or of a pending task what it will get; None: the whole card."""
    whole: bool
    """Whether the task shares its cards with no other."""
    time_limit: float | None
    """Seconds."""
    opportunistic: bool
    cards: tuple[str, ...]
    """The cards that the task holds."""
    attempt: int
    session: int | None
    stop_asked: str
    submitted: float
    begin: float | None
    started: float | None
    ended: float | None
    exit_code: int | None
    step: int | None = None
    """Progress of a running training or prediction. This and the next two are None where it is not (yet)
    known."""
    total_steps: int | None = None
    left: float | None = None
    """Seconds until the end, estimated from the speed so far, or until the session must have ended."""
    last_step: int | None = None
    """The step at which the session of a running training will end, about, if the run does not finish in
    it."""
    durability: str | None = None
    """How far the remote copy of a running task is: ``durable up to step 400``; None: it has no copy."""

    def seconds(self, now: float) -> float:
        """How long the task has waited, has been running, or ran."""
        if self.started is None:
            return max(0.0, (self.ended or now) - self.submitted)
        return max(0.0, (self.ended or now) - self.started)


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of one sweep as one entry of the list."""

    id: str
    short: str
    tasks: tuple[TaskRow, ...]
    """At least two; not all tasks where the list is restricted to some states or to one user."""
    total: int
    """The number of tasks of the whole sweep."""

    def seconds(self, now: float) -> float:
        """The time from the first submission to the last end, or to now."""
        ends = [now if task.ended is None else task.ended for task in self.tasks]
        return max(0.0, max(ends) - min(task.submitted for task in self.tasks))

    @property
    def name(self) -> str:
        """The given name; else the common prefix of the names of the tasks, up to the first key whose values
        differ: ``lr`` for ``lr-1e-3`` and ``lr-1e-4``."""
        if (given := self.tasks[0].sweep_name) is not None:
            return given
        common = os.path.commonprefix([task.name for task in self.tasks])  # noqa: RUF071  - the names are not paths
        before, line, last = common.rpartition("_")
        return f"{before}{line}{last.partition('-')[0]}".rstrip("_")

    @property
    def reason(self) -> str:
        """Why its pending tasks wait: held tasks first, then the reason of one of the others. If none waits,
        why the first task that did not succeed ended."""
        waits = [task for task in self.tasks if task.state == PENDING]
        held = sum(task.held for task in waits)
        other = next((task.reason for task in waits if not task.held), "")
        if not held:
            return other or self._failure
        count = f"{held} of them " if other else ""
        hint = f"{HELD}: {count}until they are released (roost release {self.short})"
        return f"{hint}; {other}" if other else hint

    @property
    def _failure(self) -> str:
        """The reason of the first task that failed or crashed; empty if none did."""
        bad = next((task for task in self.tasks if task.state in (FAILED, CRASHED)), None)
        return f"{bad.name} {bad.state}: {bad.reason}".removesuffix(": ") if bad is not None else ""

    @property
    def counts(self) -> dict[str, int]:
        """The number of tasks in each state that occurs."""
        states = [task.state for task in self.tasks]
        return {state: states.count(state) for state in (*LIVE, PENDING, *ENDED) if state in states}


class TaskEvent(msgspec.Struct, frozen=True):
    """An event in the history of a task."""

    at: float
    kind: str
    text: str


class TaskExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task, with the reason and the events."""

    id: str
    label: str = ""
    """The short name, such as ``A_13``."""
    name: str
    kind: str = TaskKind.TRAIN
    """As in `TaskRow`."""
    package: str
    session_folder: str = ""
    """As in `TaskRow`."""
    state: str
    priority: int = 0
    ahead: int | None = None
    """How many tasks are considered before it; None: it waits for no capacity, or several users have tasks,
    whose order changes with each start."""
    reason: str
    """The same as in `roost tasks --json`; may be empty."""
    why: str
    """One line for the user; never empty."""
    command: list[str]
    """The command of the user with its arguments; empty for a training."""
    can_go_on: bool
    """Whether `roost continue` would resume it: a training that did not succeed and that no later session has
    continued."""
    events: list[TaskEvent]
    """In order of time; the oldest events of the queue are deleted."""
