"""Reads the progress, the metrics and the settings of tasks from their packages."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from roost.lab.queue.task import ENDED, RUNNING, STOPPING, Task
from roost.operations.listing import search_fields
from roost.operations.live_lab.lab_change import (
    LabChange,
    MetricPoint,
    SettingValue,
    TaskFields,
    TaskMetrics,
    TaskProgress,
)
from roost.operations.queue.list_tasks import ProgressDetails, progress_details, read_deadline
from roost.package import records
from roost.package.live_progress import ProgressReader, ProgressRecord
from roost.package.records import SessionFollower

MAX_METRICS = 200
"""Metrics of one task that are followed."""
_MAX_NAME_CHARACTERS = 200
_MAX_POINTS = 32
"""Points of one metric in one change."""
_MAX_SETTINGS, _MAX_TEXT_CHARACTERS = 300, 200
_TAIL_BYTES = 1 << 17
"""Of longer records, only the end is read; the newest values of older metrics are in `TaskFields`."""
_DEADLINE_SECONDS = 5.0
_MAX_FOLDED_BYTES = 1 << 18
"""Longer records are not read whole for `TaskFields`."""
_FIELDS_SECONDS, _TAILS_SECONDS = 0.005, 0.01
"""Fields, and the ends of records, are read for so long in one call: those of a thousand new tasks must not
delay other changes."""

_FieldsState = tuple[str | None, int, bool]
"""After a change of these, the fields of a task are read again: package, session, whether it has ended."""


class _Followed:
    """A running task."""

    def __init__(self, task: Task) -> None:
        folder = task.folder
        self.session = task.session
        self.progress = ProgressReader(folder / "progress")
        self.record: ProgressRecord | None = None
        """The record that was sent last."""
        path = folder / "records" / f"{task.session}.jsonl"
        self.rows = None if task.session is None else SessionFollower(path, tail_bytes=_TAIL_BYTES)
        self.has_read = False
        """Whether the tail was read."""
        self.names: set[str] = set()
        self._deadline: float | None = None
        self._deadline_read = 0.0

    def deadline(self, task: Task, now: float) -> float | None:
        """Returns by when the session must have ended, read every few seconds."""
        if now - self._deadline_read >= _DEADLINE_SECONDS:
            self._deadline, self._deadline_read = read_deadline(task), now
        return self._deadline


class RunWatch:
    """Follows the packages of the tasks of a list."""

    def __init__(self) -> None:
        self._followed: dict[str, _Followed] = {}
        self._fields: dict[str, _FieldsState] = {}
        self._unread: deque[str] = deque()
        self._queued: set[str] = set()
        self.ends: dict[str, float] = {}
        """The expected end of running tasks (Unix seconds), by id, as far as known."""

    @property
    def num_running(self) -> int:
        """The number of running tasks."""
        return len(self._followed)

    def progress(self, tasks: Iterable[Task]) -> Iterator[LabChange]:
        """Yields the new progress and the new metrics of the running ones of these tasks; of tasks that have
        ended since the last call, the last metrics."""
        now = time.time()
        running = {task.id: task for task in tasks if task.state in (RUNNING, STOPPING)}
        for id in self._followed.keys() - running.keys():
            yield from self._new_points(id, self._followed.pop(id))
            self.ends.pop(id, None)
        for task in running.values():
            followed = self._followed.get(task.id)
            if followed is None or followed.session != task.session:
                followed = self._followed[task.id] = _Followed(task)
                self._set_end(task, None, now)
            record = followed.progress.read()
            if record is followed.record:
                continue
            deadline = followed.deadline(task, now)
            if (found := progress_details(task, record, now, deadline=deadline)) is not None:
                followed.record = record
                self._set_end(task, found.left, now)
                yield _progress_change(task.id, found)
        yield from self._metrics_of_all()

    def _set_end(self, task: Task, left: float | None, now: float) -> None:
        if left is not None:
            self.ends[task.id] = now + left
        elif task.need.time_limit is not None and task.started is not None:
            self.ends[task.id] = task.started + task.need.time_limit
        else:
            self.ends.pop(task.id, None)

    def _metrics_of_all(self) -> Iterator[LabChange]:
        """Yields the new points of all running tasks. The tails of many new ones are read over several
        calls."""
        deadline = time.perf_counter() + _TAILS_SECONDS
        for id, followed in self._followed.items():
            if followed.has_read or time.perf_counter() < deadline:
                followed.has_read = True
                yield from self._new_points(id, followed)

    def _new_points(self, id: str, followed: _Followed) -> Iterator[LabChange]:
        rows = followed.rows.new_rows() if followed.rows is not None else ()
        points: dict[str, list[MetricPoint]] = {}
        void_after: int | None = None
        for row in rows:
            if "start_step" in row:
                # An earlier session, or this one before it went back.
                step = row["start_step"]
                void_after = step if void_after is None else min(void_after, step)
                for found in points.values():
                    found[:] = [point for point in found if point[0] <= step]
                continue
            for name, value in records.metrics(row).items():
                if name in followed.names or self._is_followed(followed, name):
                    number = value if math.isfinite(value) else None
                    points.setdefault(name, []).append((row["step"], number))
        if points or void_after is not None:
            thinned = {name: _thin(found) for name, found in points.items() if found}
            yield TaskMetrics(id=id, points=thinned, void_after=void_after)

    def _is_followed(self, followed: _Followed, name: str) -> bool:
        if len(followed.names) >= MAX_METRICS or len(name) > _MAX_NAME_CHARACTERS:
            return False
        followed.names.add(name)
        return True

    # --- fields

    def require_fields(self, tasks: Iterable[Task]) -> None:
        """Notes tasks that are new or have changed; `fields` reads theirs if needed."""
        for task in tasks:
            if self._fields.get(task.id) != _fields_state(task) and task.id not in self._queued:
                self._queued.add(task.id)
                self._unread.append(task.id)

    def forget(self, id: str) -> None:
        """Forgets a task that is no longer in the list."""
        self._fields.pop(id, None)

    def fields(self, tasks: Mapping[str, Task]) -> Iterator[LabChange]:
        """Yields fields of tasks that were noted, for some milliseconds."""
        deadline = time.perf_counter() + _FIELDS_SECONDS
        while self._unread and time.perf_counter() < deadline:
            id = self._unread.popleft()
            self._queued.discard(id)
            if (task := tasks.get(id)) is not None:
                self._fields[id] = _fields_state(task)
                yield _read_fields(task)


def _progress_change(id: str, found: ProgressDetails) -> TaskProgress:
    record = found.record
    return TaskProgress(
        id=id,
        step=record.step,
        total_steps=record.total_steps or None,
        epoch=record.epoch,
        fraction=record.fraction if 0 < record.fraction <= 1 else None,
        left=found.left,
        samples_per_second=record.samples_per_second if math.isfinite(record.samples_per_second) else 0.0,
        phase=record.phase,
        last_step=found.last_step,
        durability=found.durability,
    )


def _fields_state(task: Task) -> _FieldsState:
    return task.package, task.session or 0, task.state in ENDED


def _thin(points: list[MetricPoint]) -> list[MetricPoint]:
    """Returns at most `_MAX_POINTS` of these points, evenly, with the newest."""
    stride = -(-len(points) // _MAX_POINTS)
    return points if stride == 1 else points[::-1][::stride][::-1]


def _read_fields(task: Task) -> TaskFields:
    found = search_fields.read_search_fields(Path(task.package), max_record_bytes=_MAX_FOLDED_BYTES)
    settings: dict[str, list[SettingValue]] = {}
    for name, values in found.settings.items():
        if len(settings) < _MAX_SETTINGS and len(name) <= _MAX_NAME_CHARACTERS:
            settings[name] = [_setting(value) for value in values[:_MAX_SETTINGS]]
    names = [name for name in found.metrics if len(name) <= _MAX_NAME_CHARACTERS][:MAX_METRICS]
    metrics = {name: found.metrics[name] for name in names}
    return TaskFields(
        id=task.id,
        settings=settings,
        metrics={name: value if math.isfinite(value) else None for name, value in metrics.items()},
    )


def _setting(value: SettingValue) -> SettingValue:
    if isinstance(value, str):
        return value[:_MAX_TEXT_CHARACTERS]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
