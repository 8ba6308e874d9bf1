"""Pending tasks, grouped by their requests."""

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
    """The pending tasks of a state in groups, updated to the next state by the difference.

    The cost of a pass over a long queue is mostly in the lines here that touch each task.

    Args:
        state: The input of the decision.
    """

    def __init__(self, state: PolicyState) -> None:
        self._state, self._sees_users = state, _depends_on_user(state)
        self._pending = list(state.pending)
        self._expected, self._closed = dict(state.expected), dict(state.closed_cards)
        self._conditions = StartConditions()
        tasks = by_age(self._pending)
        conditional = list(filter(is_conditional, tasks))
        self._conditional = dict(zip(map(by_id, conditional), conditional, strict=True))
        """By age."""
        self.waiting = self._conditions.reasons(self._conditional.values(), state)
        """Why tasks wait for something other than capacity, by id."""
        if waiting := self.waiting:
            tasks = [task for task in tasks if task.id not in waiting]
        found: defaultdict[Hashable, list[Task]] = defaultdict(list)
        for key, task in zip(self._keys(tasks), tasks, strict=True):
            found[key].append(task)
        self.groups: dict[Hashable, TaskGroup] = {
            key: self._new_group(candidates) for key, candidates in found.items()
        }
        """The other tasks, by request."""
        self._reasons: dict[str, str] = {}

    def update(self, state: PolicyState) -> bool:
        """Advances to another state. Returns False, and is unusable then, if more than a few tasks differ, or
        predictions, closed cards, or whether reserved windows exist."""
        if (self._sees_users, self._expected, self._closed) != (
            _depends_on_user(state),
            state.expected,
            state.closed_cards,
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

    def reasons(self) -> dict[str, str]:
        """Returns why each task waits, by id."""
        reasons = self._reasons
        for group in self.groups.values():
            if group.reason != group.reported_reason:
                reasons.update(dict.fromkeys(map(by_id, group.tasks), group.reason))
                group.reported_reason = group.reason
        return reasons | self.waiting

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
            return zip(keys, map(self._distinction, tasks), strict=True)
        return keys

    def _distinction(self, task: Task) -> Hashable:
        """Returns what may distinguish tasks with equal requests."""
        user = task.user if self._sees_users else None
        return self._expected.get(task.id), user, self._closed.get(task.id)

    def _new_group(self, tasks: list[Task]) -> TaskGroup:
        need, expected = tasks[0].need, self._expected.get(tasks[0].id, _NOTHING)
        return TaskGroup(
            tasks, Shape.from_need(need, expected.memory_mb), expected_seconds(tasks[0], self._state)
        )

    def _put(self, task: Task) -> None:
        (key,) = self._keys([task])
        group = self.groups.get(key)
        if group is None:
            self.groups[key] = self._new_group([task])
            return
        insort(group.tasks, task, key=age_key)
        if group.reported_reason is not None:
            self._reasons[task.id] = group.reported_reason

    def _drop(self, task: Task) -> None:
        (key,) = self._keys([task])
        tasks = self.groups[key].tasks
        del tasks[bisect_left(tasks, age_key(task), key=age_key)]
        self._reasons.pop(task.id, None)
        if not tasks:
            del self.groups[key]


def _depends_on_user(state: PolicyState) -> bool:
    """Whether decisions depend on the user of a task: reserved windows exist."""
    return any(window.end > state.now for window in state.rules.reserved)
