"""The conditions of a start other than capacity: a hold, a begin time, dependencies."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from roost.lab.policy import wait_reasons
from roost.lab.policy.policy_state import PolicyState
from roost.lab.policy.reason_codes import DEPENDENCY, reason_code
from roost.lab.queue.task import PENDING, SUCCEEDED, Task


def is_conditional(task: Task) -> bool:
    """Whether a task may have to wait for something other than capacity."""
    return bool(task.held or task.begin or task.after or task.after_any)


def can_never_start(task: Task, read_task: Callable[[str], Task | None]) -> bool:
    """Whether a pending task waits for a dependency that can no longer succeed.

    The states in the queue decide, not the text of the reason, so this holds for reasons of any version.

    Args:
        task: Its stored reason says whether it waits for a dependency at all.
        read_task: Reads another task of the queue; None if the queue does not have it.
    """
    if reason_code(task.reason) != DEPENDENCY:
        return False
    others = ((id, read_task(id)) for id in task.after)
    first_unmet = next((id for id, other in others if other is None or other.state != SUCCEEDED), None)
    remaining = [] if first_unmet is None else [first_unmet]
    checked: set[str] = set()
    while remaining:
        id = remaining.pop()
        if id in checked:
            continue
        checked.add(id)
        other = read_task(id)
        if wait_reasons.never_succeeds(id, None if other is None else other.state) is not None:
            return True
        if other is not None and other.state == PENDING:
            remaining += other.after
    return False


class StartConditions:
    """Evaluates the conditions of one state after the other. The result for a task with dependencies is
    cached as long as these are in the same states."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Hashable, str | None, str | None]] = {}

    def reasons(self, tasks: Iterable[Task], state: PolicyState) -> dict[str, str]:
        """Returns why tasks wait, by id, without those that may start.

        Args:
            tasks: By age. A dependency is older than its dependents, so it comes before them.
            state: The input of the decision.
        """
        states, known_now, reasons = state.dependency_states, {}, {}
        causes: dict[str, str] = {}
        """By tasks that can never start: why the first task that they wait for, over others, cannot
        succeed."""
        for task in tasks:
            facts: Hashable = None
            if not task.held and task.begin is None:
                others = task.dependencies
                facts = task.after, others, (*map(states.get, others),), (*map(causes.get, others),)
            known = self._known.get(task.id)
            if facts is None or known is None or known[0] != facts:
                known = facts, _cause(task, states, causes), _reason(task, state, causes)
            known_now[task.id] = known
            _, cause, reason = known
            if cause is not None:
                causes[task.id] = cause
            if reason is not None:
                reasons[task.id] = reason
        self._known = known_now
        return reasons


def _cause(task: Task, states: Mapping[str, str], causes: Mapping[str, str]) -> str | None:
    found = (causes.get(one) or wait_reasons.never_succeeds(one, states.get(one)) for one in task.after)
    return next(filter(None, found), None)


def _reason(task: Task, state: PolicyState, causes: Mapping[str, str]) -> str | None:
    if task.held:
        return wait_reasons.held(task)
    dependency, is_final = _dependency(task, state, causes)
    if task.begin is None or task.begin <= state.now or is_final:
        return dependency
    begin = wait_reasons.begin(task, state.now)
    return begin if dependency is None else wait_reasons.begin_and(begin, dependency)


def _dependency(task: Task, state: PolicyState, causes: Mapping[str, str]) -> tuple[str | None, bool]:
    """Returns why a task waits for the first unmet dependency, and whether that can no longer succeed."""
    states = state.dependency_states
    for one in task.after:
        reason = wait_reasons.dependency(one, states.get(one), causes.get(one))
        if reason is not None:
            can_succeed = one not in causes and wait_reasons.never_succeeds(one, states.get(one)) is None
            return reason, not can_succeed
    reasons = (wait_reasons.dependency_end(one, states.get(one), causes.get(one)) for one in task.after_any)
    return next(filter(None, reasons), None), False
