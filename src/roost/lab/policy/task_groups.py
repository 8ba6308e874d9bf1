"""Tasks that wait, by what they ask for."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from roost.lab.policy.card_capacity import Shape
from roost.lab.policy.pass_cache import difference
from roost.lab.policy.policy_state import Expectation, PolicyState
from roost.lab.policy.queue_order import TaskGroup, age_key, by_age, by_id
from roost.lab.policy.running_tasks import expected_seconds
from roost.lab.policy.start_conditions import StartConditions, is_conditional
from roost.lab.queue.task import Task

_NOTHING = Expectation()
_request_key = attrgetter("need", "priority", "sweep", "most_parallel")


class TaskGroups:
    """Those of one state; goes on to the next one by what has changed.

    What a pass over a long queue costs is mostly in the lines that see each task.

    Args:
        state: What is decided on.
    """

    def __init__(self, state: PolicyState) -> None:
        self._state, self._sees_users = state, _depends_on_user(state)
        self._pending = list(state.pending)
        self._expected, self._closed = dict(state.expected), dict(state.closed)
        self._conditions = StartConditions()
        tasks = by_age(self._pending)
        conditional = list(filter(is_conditional, tasks))
        self._conditional = dict(zip(map(by_id, conditional), conditional, strict=True))
        """By age."""
        self.waiting = self._conditions.reasons(self._conditional.values(), state)
        """Why those wait that do so for something else than room."""
        if waiting := self.waiting:
            tasks = [task for task in tasks if task.id not in waiting]
        found: defaultdict[Hashable, list[Task]] = defaultdict(list)
        for key, task in zip(self._keys(tasks), tasks, strict=True):
            found[key].append(task)
        self.alike: dict[Hashable, TaskGroup] = {key: self._made(some) for key, some in found.items()}
        """The others."""
        self._told: dict[str, str] = {}

    def follow(self, state: PolicyState) -> bool:
        """Goes on to another state; False where more than a few tasks differ, or what is known of them."""
        if (self._sees_users, self._expected, self._closed) != (
            _depends_on_user(state),
            state.expected,
            state.closed,
        ):
            return False
        differing = difference(self._pending, state.pending)
        if differing is None:
            return False
        self._state, self._pending = state, list(state.pending)
        self._change(*differing)
        waited = self.waiting
        self.waiting = self._conditions.reasons(self._conditional.values(), state)
        for id in waited.keys() - self.waiting.keys() & self._conditional.keys():
            self._put(self._conditional[id])
        for id in self.waiting.keys() - waited.keys():
            self._drop(self._conditional[id])
        return True

    def tell(self) -> dict[str, str]:
        """Why each one waits."""
        told = self._told
        for alike in self.alike.values():
            if alike.reason != alike.told:
                told.update(dict.fromkeys(map(by_id, alike.tasks), alike.reason))
                alike.told = alike.reason
        return told | self.waiting

    def _change(self, gone: Iterable[Task], come: Sequence[Task]) -> None:
        for task in gone:
            self._conditional.pop(task.id, None)
            if self.waiting.pop(task.id, None) is None:
                self._drop(task)
        conditional = [task for task in come if is_conditional(task)]
        if conditional:
            both = by_age([*self._conditional.values(), *conditional])
            self._conditional = {task.id: task for task in both}
        for task in come:
            self._put(task)

    def _keys(self, tasks: Sequence[Task]) -> Iterable[Hashable]:
        keys: Iterable[Any] = map(_request_key, tasks)
        if self._sees_users or self._expected or self._closed:
            return zip(keys, map(self._what_else, tasks), strict=True)
        return keys

    def _what_else(self, task: Task) -> Hashable:
        """In what tasks may differ that ask for the same."""
        user = task.user if self._sees_users else None
        return self._expected.get(task.id), user, self._closed.get(task.id)

    def _made(self, tasks: list[Task]) -> TaskGroup:
        need, expected = tasks[0].need, self._expected.get(tasks[0].id, _NOTHING)
        return TaskGroup(tasks, Shape.of(need, expected.memory_mb), expected_seconds(tasks[0], self._state))

    def _put(self, task: Task) -> None:
        (key,) = self._keys([task])
        alike = self.alike.get(key)
        if alike is None:
            self.alike[key] = self._made([task])
            return
        insort(alike.tasks, task, key=age_key)
        if alike.told is not None:
            self._told[task.id] = alike.told

    def _drop(self, task: Task) -> None:
        (key,) = self._keys([task])
        tasks = self.alike[key].tasks
        del tasks[bisect_left(tasks, age_key(task), key=age_key)]
        self._told.pop(task.id, None)
        if not tasks:
            del self.alike[key]


def _depends_on_user(state: PolicyState) -> bool:
    """Whether it matters whose a task is."""
    return any(window.end > state.now for window in state.rules.reserved)
