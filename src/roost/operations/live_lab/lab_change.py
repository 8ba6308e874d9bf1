"""Changes of the lab, as the observer finds them and a subscriber receives them.

A subscriber applies them in order (`roost.operations.live_lab.lab_state.LabState.apply`). Each change
replaces an earlier one about the same thing, except the points of `TaskMetrics`, the samples of `CardSamples`
and the lines of `JournalLines`, which are added.
"""

from __future__ import annotations

import msgspec

from roost.operations.devices.device_list import DeviceList
from roost.operations.task_results import TaskRow

MetricPoint = tuple[int, float | None]
"""A step and the value there; None for one that is not a finite number."""
SettingValue = str | float | int | bool | None
"""A number that is not finite is a text."""


class LabReset(msgspec.Struct, frozen=True, tag="reset"):
    """What was received before is void: the whole state follows in the same event."""


class LabSummary(msgspec.Struct, frozen=True, kw_only=True, tag="summary"):
    """The lab as a whole."""

    daemon: int | None
    """The pid of the daemon; None: none runs, so no task is started."""
    counts: dict[str, int]
    """The number of tasks in each state that has any, those that are not shown included."""
    trouble: str = ""
    """Why the queue cannot be read now; empty: it can."""


class TaskRowChange(msgspec.Struct, frozen=True, tag="task"):
    """A task that is new or has changed."""

    row: TaskRow


class TaskRemoval(msgspec.Struct, frozen=True, tag="removal"):
    """A task that is no longer shown: it ended long ago, or the queue was created again."""

    id: str


class SweepChange(msgspec.Struct, frozen=True, tag="sweep"):
    """A sweep of which tasks are shown."""

    id: str
    short: str
    """The shortest unique prefix of the id."""
    total: int
    """The number of its tasks."""


class PendingOrder(msgspec.Struct, frozen=True, kw_only=True, tag="order"):
    """The order in which pending tasks are considered. It is sent again when it changes otherwise than by
    tasks that leave it."""

    ids: tuple[str, ...]
    """Without tasks that wait for a hold, a time or another task. Empty, too, if several users have tasks:
    their order changes with each start."""


class ExpectedStarts(msgspec.Struct, frozen=True, kw_only=True, tag="starts"):
    """When pending tasks start, as far as known (`roost.operations.live_lab.expected_starts`)."""

    times: dict[str, float]
    """Unix seconds by task; a task that is not there has no known start."""


class TaskProgress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """The progress of a running training."""

    id: str
    step: int
    total_steps: int | None
    epoch: int
    fraction: float | None
    """The part that is done, from 0 to 1; None: not known."""
    left: float | None
    """Seconds until the end, estimated from the speed so far, or until the session must have ended."""
    samples_per_second: float
    phase: str
    """One of `roost.package.live_progress.PHASES`."""
    last_step: int | None = None
    """The step at which the session will end, about, if the run does not finish in it."""
    durability: str | None = None
    """How far the remote copy is: ``durable up to step 400``; None: there is none."""


class TaskMetrics(msgspec.Struct, frozen=True, kw_only=True, tag="metrics"):
    """New values of the metrics of a running task."""

    id: str
    points: dict[str, list[MetricPoint]]
    """The new points of each metric, the oldest first. Where there are many, some are left out, never the
    newest."""
    void_after: int | None = None
    """The run went back to this step: points of later steps that were received before are void."""


class TaskFields(msgspec.Struct, frozen=True, kw_only=True, tag="fields"):
    """The settings of a task, and the newest values of its metrics, for queries."""

    id: str
    settings: dict[str, list[SettingValue]]
    """By dotted name; the elements of a list share one name."""
    metrics: dict[str, float | None]
    """The newest value of each metric, those recorded long ago included; None for one that is not a finite
    number. A point is newer."""


class CardsChange(msgspec.Struct, frozen=True, tag="cards"):
    """The cards, who holds them, foreign processes, and the rules of the lab."""

    devices: DeviceList


class CardReading(msgspec.Struct, frozen=True, kw_only=True):
    """A card at one moment. Values that were not measured are None."""

    id: str
    utilization: float | None
    """Per cent."""
    memory_mb: float | None
    """Used memory."""
    power: float | None
    """Watts."""
    temperature: float | None
    """Degrees Celsius."""


class HostReading(msgspec.Struct, frozen=True, kw_only=True):
    """The host at one moment. Values that were not measured are None."""

    cpu: float | None
    """Per cent of all cores."""
    memory_mb: float | None
    """Used memory."""
    load: float | None
    """How many processes computed or waited for a core, on average over a minute."""


class CardSamples(msgspec.Struct, frozen=True, kw_only=True, tag="samples"):
    """The cards and the host at one moment."""

    at: float
    """Unix seconds."""
    cards: list[CardReading]
    host: HostReading
    trouble: str = ""
    """Why there are no samples of the cards; empty: there are, or the machine has no cards."""


class JournalLines(msgspec.Struct, frozen=True, kw_only=True, tag="journal"):
    """New lines of the server's journal."""

    lines: list[str]
    cleared: bool = False
    """Whether the lines received before were cleared."""


LabChange = (
    LabReset
    | LabSummary
    | TaskRowChange
    | TaskRemoval
    | SweepChange
    | PendingOrder
    | ExpectedStarts
    | TaskProgress
    | TaskMetrics
    | TaskFields
    | CardsChange
    | CardSamples
    | JournalLines
)
