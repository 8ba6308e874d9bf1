"""The view-model of the lab: what its changes add up to, without a terminal.

The full-screen client and each other reader of `follow_lab` applies the changes that it receives to one
`LabState`, and draws from it::

    state = LabState()
    for event in client.follow_lab():
        state.apply_all(event.data)
        for entry in state.tasks(filter="state:running valid/accuracy>=0.9"):
            ...
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from roost.lab.queue.task import ENDED, PENDING
from roost.operations.devices.device_list import CardStatus, DeviceList, HostStatus
from roost.operations.live_lab import task_filter
from roost.operations.live_lab.lab_change import (
    CardReading,
    CardSamples,
    CardsChange,
    ExpectedStarts,
    HostReading,
    JournalLines,
    LabChange,
    LabReset,
    LabSummary,
    PendingOrder,
    SettingValue,
    SweepChange,
    TaskFields,
    TaskMetrics,
    TaskProgress,
    TaskRemoval,
    TaskRowChange,
)
from roost.operations.live_lab.value_history import MetricHistory, SampleHistory
from roost.operations.task_results import Sweep, TaskRow

MAX_JOURNAL_LINES = 1000
MAX_METRICS = 200
"""Metrics of one task with a history."""
_MONITORED = "checkpoint.best.monitor"
"""The setting that names the metric by which the best checkpoint is chosen."""
_MAIN_METRICS = ("valid/", "test/", "train/loss", "train/")
"""Beginnings of the metrics that stand for a run without a monitored one, the first that it has."""


class LabTask:
    """A task as it is now. The object of a task stays the same as long as the task is shown."""

    def __init__(self, row: TaskRow) -> None:
        self.row = row
        """With the newest progress."""
        self.position: int | None = None
        """The number of tasks that are considered before a pending one; None: it has no place."""
        self.expected_start: float | None = None
        """When a pending task starts (Unix seconds); None: not known."""
        self.progress: TaskProgress | None = None
        """Of a running training."""
        self.histories: dict[str, MetricHistory] = {}
        """Of each metric with points, in the order of their first."""
        self.settings: Mapping[str, list[SettingValue]] = {}
        """By dotted name; empty as long as they were not received."""
        self.recorded: Mapping[str, float] = {}
        """The newest value of each metric when the settings were read; a point is newer."""

    @property
    def id(self) -> str:
        """The id of the task."""
        return self.row.id

    def metrics(self) -> dict[str, float]:
        """Returns the newest value of each metric."""
        found = dict(self.recorded)
        for name, history in self.histories.items():
            if (value := history.newest) is not None:
                found[name] = value
        return found

    def metric(self, name: str) -> float | None:
        """Returns the newest value of a metric; None if there is none."""
        history = self.histories.get(name)
        newest = None if history is None else history.newest
        return self.recorded.get(name) if newest is None else newest

    def metric_names(self) -> list[str]:
        """Returns the names of the metrics, those with points first."""
        return [*self.histories, *(name for name in self.recorded if name not in self.histories)]

    def main_metric(self) -> str | None:
        """Returns the name of the metric that a list shows: the one by which the best checkpoint is chosen,
        else one of validation, else of training; None without metrics."""
        names = self.metric_names()
        for monitored in self.settings.get(_MONITORED, ()):
            if monitored in names:
                return str(monitored)
        for beginning in _MAIN_METRICS:
            if (found := next((name for name in names if name.startswith(beginning)), None)) is not None:
                return found
        return names[0] if names else None

    def seconds(self, now: float | None = None) -> float:
        """Returns how long the task has waited, has been running, or ran."""
        return self.row.seconds(time.time() if now is None else now)

    # --- changes, applied by LabState

    def set_row(self, row: TaskRow) -> None:
        """Replaces the row. Another attempt begins without progress."""
        is_same_attempt = row.attempt == self.row.attempt and row.state not in (PENDING, *ENDED)
        self.row = row
        if not is_same_attempt:
            self.progress = None
        elif self.progress is not None:
            self.set_progress(self.progress)

    def set_progress(self, progress: TaskProgress) -> None:
        """Replaces the progress, also that of the row."""
        self.progress = progress
        self.row = msgspec.structs.replace(
            self.row,
            step=progress.step,
            total_steps=progress.total_steps,
            left=progress.left,
            last_step=progress.last_step,
            durability=progress.durability,
        )

    def add_points(self, change: TaskMetrics) -> None:
        """Adds points to the histories."""
        if change.void_after is not None:
            for history in self.histories.values():
                history.void_after(change.void_after)
        for name, points in change.points.items():
            if name in self.histories or len(self.histories) < MAX_METRICS:
                self.histories.setdefault(name, MetricHistory()).add(
                    (step, as_float(value)) for step, value in points
                )

    def set_fields(self, change: TaskFields) -> None:
        """Replaces the settings and the recorded values of the metrics."""
        self.settings = change.settings
        self.recorded = {name: as_float(value) for name, value in change.metrics.items()}


def as_float(value: float | None) -> float:
    """Returns a value of a change; NaN for None."""
    return math.nan if value is None else value


def as_json(value: float) -> float | None:
    """Returns a value for a change; None if it is not a finite number."""
    return value if math.isfinite(value) else None


class LabSweep:
    """A sweep as one entry of a list of tasks."""

    def __init__(self, sweep: Sweep, tasks: tuple[LabTask, ...]) -> None:
        self.sweep = sweep
        """For the cells of a table: the counts of states, the name, the reason."""
        self.tasks = tasks
        """Those that match the filter, at least two."""

    @property
    def id(self) -> str:
        """The id of the sweep."""
        return self.sweep.id

    def fraction(self) -> float:
        """Returns the part of the sweep that is done, from 0 to 1: ended tasks, and of running trainings the
        part that is done."""
        done = 0.0
        for task in self.tasks:
            if task.row.state in ENDED:
                done += 1.0
            elif task.progress is not None and task.progress.fraction is not None:
                done += task.progress.fraction
        return done / len(self.tasks)


class CardShare(NamedTuple):
    """A part of the memory of a card, for its bar."""

    kind: Literal["task", "lease", "process"]
    """A task of this lab, another lease, or a process whose owner holds no lease."""
    key: str
    """The id of the task; of another lease the user; of a process its pid."""
    mb: int | None
    """None: the whole card, or not known for a process."""


class LabCard:
    """A card as it is now, with what it did in the last two minutes."""

    def __init__(self, status: CardStatus) -> None:
        self.status = status
        """With the newest sample."""
        self.utilization = SampleHistory()
        """Per cent."""
        self.memory_mb = SampleHistory()
        self.power = SampleHistory()
        """Watts."""
        self.temperature = SampleHistory()
        """Degrees Celsius."""

    @property
    def id(self) -> str:
        """The id of the card."""
        return self.status.id

    def shares(self) -> list[CardShare]:
        """Returns the parts of the card's memory, in the order of `roost devices`."""
        status = self.status
        return [
            *(CardShare("task", task.id, task.mb) for task in status.tasks),
            *(CardShare("lease", lease.user, lease.mb) for lease in status.leases),
            *(CardShare("process", str(one.pid), one.mb) for one in status.processes),
        ]

    def reading(self, at: float) -> CardReading | None:
        """Returns the sample of a time that `add_sample` has added; None: there is none."""
        times = self.utilization.times
        place = bisect_left(times, at)
        if place == len(times) or times[place] != at:
            return None
        return CardReading(
            id=self.id,
            utilization=self.utilization.values[place],
            memory_mb=self.memory_mb.values[place],
            power=self.power.values[place],
            temperature=self.temperature.values[place],
        )

    def add_sample(self, at: float, sample: CardReading) -> None:
        """Adds a sample to the histories and to the status."""
        self.utilization.add(at, sample.utilization)
        self.memory_mb.add(at, sample.memory_mb)
        self.power.add(at, sample.power)
        self.temperature.add(at, sample.temperature)
        self.status = with_sample(self.status, sample)


def with_sample(status: CardStatus, sample: CardReading) -> CardStatus:
    """Returns the status of a card with the values of a sample; those that were not measured stay."""
    used, utilization, temperature = sample.memory_mb, sample.utilization, sample.temperature
    return msgspec.structs.replace(
        status,
        free_mb=status.free_mb if used is None else max(0, status.total_mb - round(used)),
        utilization=status.utilization if utilization is None else round(utilization),
        temperature=status.temperature if temperature is None else round(temperature),
        power=status.power if sample.power is None else sample.power,
    )


def _with_reading(host: HostStatus, reading: HostReading) -> HostStatus:
    used, load = reading.memory_mb, reading.load
    return msgspec.structs.replace(
        host,
        memory_used_mb=host.memory_used_mb if used is None else round(used),
        busy_cores=host.busy_cores if load is None else load,
    )


class LabState:
    """The lab as its changes describe it. Not for several threads at once.

    ``revision`` grows with each change; ``tasks_revision``, ``cards_revision`` and ``journal_revision`` only
    with changes of their part, so a reader draws no more than has changed.
    """

    def __init__(self) -> None:
        self.revision = self.tasks_revision = self.cards_revision = self.journal_revision = 0
        self._clear()

    def _clear(self) -> None:
        self.is_known = False
        """Whether the whole state has been received."""
        self.summary = LabSummary(daemon=None, counts={})
        self.devices: DeviceList | None = None
        """The rules of the lab, its host, and the cards without their samples; None: not received."""
        self.host_cpu, self.host_memory_mb = SampleHistory(), SampleHistory()
        self.cards_trouble = ""
        """Why there are no samples of the cards; empty: there are, or the machine has no cards."""
        self.journal: deque[str] = deque(maxlen=MAX_JOURNAL_LINES)
        self._tasks: dict[str, LabTask] = {}
        self._order: tuple[str, ...] = ()
        self._is_order_old = False
        self._sweeps: dict[str, SweepChange] = {}
        self._cards: dict[str, LabCard] = {}

    # --- changes

    def apply_all(self, changes: Iterable[LabChange]) -> None:
        """Applies the changes of one event, in order."""
        for change in changes:
            self.apply(change)
        self.is_known = True

    def apply(self, change: LabChange) -> None:
        """Applies one change. A change about a task or card that is not known is ignored."""
        self.revision += 1
        match change:
            case TaskProgress():
                if (task := self._tasks.get(change.id)) is not None:
                    task.set_progress(change)
            case TaskMetrics():
                if (task := self._tasks.get(change.id)) is not None:
                    task.add_points(change)
            case CardSamples():
                self._add_samples(change)
            case TaskRowChange():
                self._set_row(change.row)
            case TaskFields():
                if (task := self._tasks.get(change.id)) is not None:
                    task.set_fields(change)
            case TaskRemoval():
                self._tasks.pop(change.id, None)
            case PendingOrder():
                self._order, self._is_order_old = change.ids, True
            case ExpectedStarts():
                for task in self._tasks.values():
                    task.expected_start = change.times.get(task.id)
            case SweepChange():
                self._sweeps[change.id] = change
            case CardsChange():
                self._set_devices(change.devices)
            case JournalLines():
                if change.cleared:
                    self.journal.clear()
                self.journal.extend(change.lines)
            case LabSummary():
                self.summary = change
            case LabReset():
                self._clear()
        self._count_revision(change)

    def _count_revision(self, change: LabChange) -> None:
        is_reset = isinstance(change, LabReset)
        is_cards = isinstance(change, CardsChange | CardSamples)
        is_journal = isinstance(change, JournalLines)
        self.cards_revision += is_reset or is_cards
        self.journal_revision += is_reset or is_journal
        self.tasks_revision += not (is_cards or is_journal)

    def _set_row(self, row: TaskRow) -> None:
        known = self._tasks.get(row.id)
        if known is None:
            self._tasks[row.id] = LabTask(row)
            self._is_order_old = True
            return
        if (known.row.state == PENDING) != (row.state == PENDING):
            self._is_order_old = True
        known.set_row(row)
        if row.state != PENDING:
            known.expected_start = None

    def _set_devices(self, devices: DeviceList) -> None:
        self.devices = devices
        cards: dict[str, LabCard] = {}
        for status in devices.cards:
            card = self._cards.get(status.id) or LabCard(status)
            card.status = status
            cards[status.id] = card
        self._cards = cards

    def _add_samples(self, change: CardSamples) -> None:
        self.cards_trouble = change.trouble
        for sample in change.cards:
            if (card := self._cards.get(sample.id)) is not None:
                card.add_sample(change.at, sample)
        self.host_cpu.add(change.at, change.host.cpu)
        self.host_memory_mb.add(change.at, change.host.memory_mb)
        if self.devices is not None:
            self.devices = msgspec.structs.replace(
                self.devices, host=_with_reading(self.devices.host, change.host)
            )

    # --- reading

    def cards(self) -> list[LabCard]:
        """Returns the cards, in the order of `roost devices`."""
        return list(self._cards.values())

    @property
    def host(self) -> HostStatus | None:
        """The cores and the memory of the host; None: not received."""
        return None if self.devices is None else self.devices.host

    def device_list(self) -> DeviceList | None:
        """Returns the cards and the host with their newest samples, as `roost devices` lists them; None: not
        received."""
        if self.devices is None:
            return None
        return msgspec.structs.replace(self.devices, cards=[card.status for card in self._cards.values()])

    def card_numbers(self) -> dict[str, int]:
        """Returns the numbers of the cards, by id."""
        return {card.id: card.status.number for card in self._cards.values()}

    def task(self, id: str) -> LabTask | None:
        """Returns a task by its id; None: it is not shown."""
        return self._tasks.get(id)

    def find(self, text: str) -> list[LabTask]:
        """Returns the tasks with an id, a label (``A_13``), a name, or a beginning of an id: the first of
        these that matches."""
        tasks = self._tasks.values()
        if text in self._tasks:
            return [self._tasks[text]]
        if labelled := [task for task in tasks if task.row.label == text]:
            return labelled
        named = [task for task in tasks if task.row.name == text]
        return named or ([task for task in tasks if task.id.startswith(text)] if text else [])

    def all_tasks(self) -> list[LabTask]:
        """Returns all tasks, in the order of submission."""
        self._set_positions()
        return sorted(self._tasks.values(), key=lambda task: (task.row.submitted, task.id))

    def tasks_on_card(self, id: str) -> list[LabTask]:
        """Returns the tasks that hold a card, in the order of submission."""
        return [task for task in self.all_tasks() if id in task.row.cards]

    def tasks(
        self, *, filter: str = "", sort: str | None = None, expanded: Collection[str] | None = ()
    ) -> list[LabTask | LabSweep]:
        """Returns the tasks that match a query; the tasks of a sweep as one entry, at the place of its first.

        Args:
            filter: As for `roost ls` (`roost.operations.live_lab.task_filter`): ``state:running lr<1e-3``.
            sort: ``key`` or ``-key``, in place of the sort keys of the filter; None: these, or without any
                the order of submission.
            expanded: Ids of sweeps whose tasks follow their entry one by one. None: no sweep is an entry.

        Raises:
            UsageError: The filter is not valid.
        """
        found = task_filter.select(self.all_tasks(), filter, sort)
        return [*found] if expanded is None else self._fold(found, expanded)

    def filter_notes(self, filter: str) -> list[str]:
        """Returns a line for each key of a filter that no task has: it may be misspelt.

        Raises:
            UsageError: The filter is not valid.
        """
        return task_filter.notes(self.all_tasks(), filter)

    def _fold(self, tasks: list[LabTask], expanded: Collection[str]) -> list[LabTask | LabSweep]:
        members: dict[str, list[LabTask]] = {}
        for task in tasks:
            if task.row.sweep is not None:
                members.setdefault(task.row.sweep, []).append(task)
        found: list[LabTask | LabSweep] = []
        for task in tasks:
            own = members.get(task.row.sweep or "", ())
            if len(own) < 2:
                found.append(task)
            elif own[0] is task:
                found.append(self._sweep(task.row.sweep or "", own))
                if task.row.sweep in expanded:
                    found += own
        return found

    def _sweep(self, id: str, tasks: Iterable[LabTask]) -> LabSweep:
        members = tuple(tasks)
        known = self._sweeps.get(id)
        total = len(members) if known is None else known.total
        short = id if known is None else known.short
        sweep = Sweep(id=id, short=short, tasks=tuple(one.row for one in members), total=total)
        return LabSweep(sweep, members)

    def _set_positions(self) -> None:
        """Numbers the pending tasks that are still in the order."""
        if not self._is_order_old:
            return
        self._is_order_old = False
        for task in self._tasks.values():
            task.position = None
        place = 0
        for id in self._order:
            task_in_order = self._tasks.get(id)
            if task_in_order is not None and task_in_order.row.state == PENDING:
                task_in_order.position, place = place, place + 1

    # --- the whole state as changes

    def snapshot(self) -> list[LabChange]:
        """Returns changes that give another `LabState` this state, with the histories."""
        tasks = list(self._tasks.values())
        expected = {task.id: task.expected_start for task in tasks if task.expected_start is not None}
        found: list[LabChange] = [LabReset(), self.summary]
        if (devices := self.device_list()) is not None:
            found.append(CardsChange(devices))
            found += self._past_samples()
        found += self._sweeps.values()
        for task in tasks:
            found.append(TaskRowChange(task.row))
            if task.settings or task.recorded:
                metrics = {name: as_json(value) for name, value in task.recorded.items()}
                found.append(TaskFields(id=task.id, settings=dict(task.settings), metrics=metrics))
            if task.progress is not None:
                found.append(task.progress)
            if points := {name: history.points() for name, history in task.histories.items()}:
                found.append(TaskMetrics(id=task.id, points=points))
        found.append(PendingOrder(ids=self._order))
        found.append(ExpectedStarts(times=expected))
        found.append(JournalLines(lines=list(self.journal)))
        return found

    def _past_samples(self) -> Iterator[CardSamples]:
        for place, at in enumerate(self.host_cpu.times):
            cards = [card.reading(at) for card in self._cards.values()]
            host = HostReading(
                cpu=self.host_cpu.values[place],
                memory_mb=self.host_memory_mb.values[place],
                load=None if self.host is None else self.host.busy_cores,
            )
            known = [one for one in cards if one is not None]
            yield CardSamples(at=at, cards=known, host=host, trouble=self.cards_trouble)
