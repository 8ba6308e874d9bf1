"""What tasks wait for beside room."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from roost.lab.policy import wait_reasons
from roost.lab.policy.policy_state import PolicyState
from roost.lab.policy.reason_codes import can_never_start
from roost.lab.queue.task import Task


def is_conditional(task: Task) -> bool:
    """Whether it may have to wait for something else than room."""
    return bool(task.held or task.begin or task.after or task.after_any)


class StartConditions:
    """Tells it of one state after the other. What was told of tasks that wait for others is remembered as
    long as those are in the same states."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[Hashable, str | None, str | None]] = {}

    def reasons(self, tasks: Iterable[Task], state: PolicyState) -> dict[str, str]:
        """Why those wait that do.

        Args:
            tasks: By age. Who is waited for is the older one, and seen before.
            state: What is decided on.
        """
        states, told, reasons = state.states, {}, {}
        causes: dict[str, str] = {}
        """Of tasks that can never start: what the first of those that they wait for, over others, has come
        to."""
        for task in tasks:
            facts: Hashable = None
            if not task.held and task.begin is None:
                others = task.others
                facts = task.after, others, (*map(states.get, others),), (*map(causes.get, others),)
            known = self._told.get(task.id)
            if facts is None or known is None or known[0] != facts:
                known = facts, _cause(task, states, causes), _reason(task, state, causes)
            told[task.id] = known
            _, cause, reason = known
            if cause is not None:
                causes[task.id] = cause
            if reason is not None:
                reasons[task.id] = reason
        self._told = told
        return reasons


def _cause(task: Task, states: Mapping[str, str], causes: Mapping[str, str]) -> str | None:
    found = (causes.get(one) or wait_reasons.never_succeeds(one, states.get(one)) for one in task.after)
    return next(filter(None, found), None)


def _reason(task: Task, state: PolicyState, causes: Mapping[str, str]) -> str | None:
    if task.held:
        return wait_reasons.held(task)
    dependency = _dependency(task, state, causes)
    if task.begin is None or task.begin <= state.now or (dependency and can_never_start(dependency)):
        return dependency
    begin = wait_reasons.begin(task, state.now)
    return begin if dependency is None else wait_reasons.begin_and(begin, dependency)


def _dependency(task: Task, state: PolicyState, causes: Mapping[str, str]) -> str | None:
    states = state.states
    reasons = [wait_reasons.dependency(one, states.get(one), causes.get(one)) for one in task.after]
    reasons += [wait_reasons.dependency_end(one, states.get(one), causes.get(one)) for one in task.after_any]
    return next((reason for reason in reasons if reason is not None), None)
