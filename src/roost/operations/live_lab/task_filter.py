"""Selects and sorts tasks by the query language of `roost ls` (`roost.operations.listing.query`).

A key is the first of these that exists:

1. a field of a task: each of `TaskRow` (``state``, ``user``, ``priority``, ``step``, ``left``, ``started``
   …), ``seconds``, ``position``, ``expected_start``, ``epoch``, ``fraction``, ``samples_per_second``;
2. a setting, dotted, with ``*`` for one part: ``optimizers.*.lr``; or the end of one: ``lr``;
3. a metric: its newest value. A key with a ``/`` is searched among metrics before settings.

A term without a key is a part of the name of the task or of its sweep, its label, or the beginning of its id.
A key that no task has selects none: a metric may come later, so that is no error (`notes` names such keys).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from roost.base.text.suggestions import did_you_mean
from roost.lab.queue.task import ENDED, LIVE, PENDING
from roost.operations.listing import query, term_match
from roost.operations.listing.query import Key, Query
from roost.operations.task_results import TaskRow

if TYPE_CHECKING:
    from roost.operations.live_lab.lab_state import LabTask

STATES = (PENDING, *LIVE, *ENDED)
_Getter = Callable[["LabTask"], Sequence[Any]]
_ROW_FIELDS = frozenset(TaskRow.__struct_fields__)
_PROGRESS_FIELDS = ("epoch", "fraction", "samples_per_second", "phase")
_OTHER_FIELDS = ("seconds", "position", "expected_start")
FIELDS = (*TaskRow.__struct_fields__, *_PROGRESS_FIELDS, *_OTHER_FIELDS)
"""The keys that are no settings and no metrics."""


def parse(text: str) -> Query:
    """Parses a filter.

    Raises:
        UsageError: The filter is not valid.
    """
    return query.parse(text, states=STATES)


def select(tasks: Sequence[LabTask], text: str, sort: str | None = None) -> list[LabTask]:
    """Returns the tasks that match a filter, sorted by it; without a sort key in their given order.

    Args:
        tasks: All tasks.
        text: The filter.
        sort: ``key`` or ``-key``, in place of the sort keys of the filter; None: these.

    Raises:
        UsageError: The filter is not valid, or one of its keys is ambiguous.
    """
    terms = parse(f"sort:{sort}" if sort else "").sort_keys
    found, parsed = list(tasks), parse(text)
    for word in parsed.words:
        found = [task for task in found if _matches_word(task.row, word.text)]
    names = _Names(tasks)
    for comparison in parsed.comparisons:
        get, matches = names.getter(comparison.key), term_match.predicate(comparison)
        found = [task for task in found if matches(get(task))]
    for sort_key in reversed(terms or parsed.sort_keys):
        found = term_match.sort_by(found, names.getter(sort_key.key), descending=sort_key.descending)
    return found


def notes(tasks: Sequence[LabTask], text: str) -> list[str]:
    """Returns a line for each key of a filter that no task has.

    Raises:
        UsageError: The filter is not valid.
    """
    names = _Names(tasks)
    found = []
    for key in parse(text).keys:
        if names.resolve(key) is None:
            meant = did_you_mean(key.name, sorted({*FIELDS, *names.settings, *names.metrics}))
            found.append(f"no task has a field, a setting or a metric {key.name}; {meant}".rstrip("; "))
    return found


def _matches_word(row: TaskRow, word: str) -> bool:
    texts = (row.name, row.sweep_name or "")
    is_named = any(word in text.casefold() for text in texts)
    return is_named or row.id.startswith(word) or row.label.casefold() == word


class _Names:
    """The keys that some tasks have.

    Args:
        tasks: The tasks.
    """

    def __init__(self, tasks: Iterable[LabTask]) -> None:
        self._tasks = tasks
        self._settings: list[str] | None = None
        self._metrics: set[str] | None = None

    @property
    def settings(self) -> list[str]:
        """The dotted names of the settings, sorted."""
        if self._settings is None:
            self._settings = sorted(set[str]().union(*(task.settings for task in self._tasks)))
        return self._settings

    @property
    def metrics(self) -> set[str]:
        """The names of the metrics."""
        if self._metrics is None:
            self._metrics = set[str]().union(*(task.metric_names() for task in self._tasks))
        return self._metrics

    def getter(self, key: Key) -> _Getter:
        """Returns the getter of the values of a key; of one that no task has there are none.

        Raises:
            UsageError: Settings of different depths or sections match the key.
        """
        return self.resolve(key) or _no_values

    def resolve(self, key: Key) -> _Getter | None:
        """As `getter`, but None for a key that no task has."""
        name = key.name
        if name in FIELDS:
            return _field_getter(name)
        if "/" in name and name in self.metrics:
            return _metric_getter(name)
        if settings := term_match.matching_settings(key, self.settings):
            return lambda task: [value for one in settings for value in task.settings.get(one, ())]
        return _metric_getter(name) if name in self.metrics else None


def _no_values(task: LabTask) -> Sequence[Any]:
    return ()


def _metric_getter(name: str) -> _Getter:
    def values(task: LabTask) -> Sequence[Any]:
        value = task.metric(name)
        return () if value is None else (value,)

    return values


def _field_getter(name: str) -> _Getter:
    now = time.time()

    def values(task: LabTask) -> Sequence[Any]:
        if name in _ROW_FIELDS:
            value = getattr(task.row, name)
        elif name == "seconds":
            value = task.row.seconds(now)
        else:
            value = getattr(task if name in _OTHER_FIELDS else task.progress, name, None)
        return value if isinstance(value, tuple) else () if value is None else (value,)

    return values
