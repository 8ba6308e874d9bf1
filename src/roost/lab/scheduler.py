"""One pass over the queue: what the machine has, what the policy says of it, and doing that."""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from roost.base import cores
from roost.base.errors import Refused, RoostError
from roost.devices import held, usage
from roost.devices.card import Card
from roost.lab.attempts import Attempts
from roost.lab.executors.protocol import Executor
from roost.lab.policy.decide import decide
from roost.lab.policy.room import spare_mb
from roost.lab.policy.state import Held, Placement, Rules, State
from roost.lab.store import Raced, Store
from roost.lab.task import EVICT, FAILED, LIVE, PENDING, Task

RULES = "rules"
"""The setting under which the rules stand."""
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT)
"""What the machine has too little of, whatever the task is."""
_RACE, _TAKEN, _MACHINE = "race:", "taken:", "machine:"
_LOOK_SECONDS, _SAFETY_SECONDS, _SOON_SECONDS = 5.0, 60.0, 0.05


def rules_in(store: Store) -> Rules:
    """Those that stand in the queue's settings, on what is usual: a task of the CPU for each core."""
    return msgspec.convert({"cores": cores.usable(), **store.settings().get(RULES, {})}, Rules)


class Scheduler:
    """Starts what the policy lets start.

    Args:
        store: The queue.
        executor: Starts the tasks.
        attempts: Takes those that were started.
        ask: The cards as they are now.
        user: Whose queue it is.
    """

    def __init__(
        self,
        store: Store,
        executor: Executor,
        attempts: Attempts,
        ask: Callable[[], list[Card]],
        *,
        user: str,
    ) -> None:
        self._store, self._executor, self._attempts = store, executor, attempts
        self._ask, self._user = ask, user
        self._reasons: dict[str, str] = {}

    def run(self) -> float | None:
        """One pass; gives in how many seconds another one may find more room although nobody wakes us. None:
        nobody waits."""
        pending = self._store.tasks(states=[PENDING])
        if not pending:
            self._reasons.clear()
            return None
        state, unseen = self._state(pending)
        decision = decide(state)
        by_id = {task.id: task for task in pending}
        cards = {card.id: card for card in state.cards}
        reasons = {**decision.reasons, **unseen}
        self._explain(reasons)  # before the starts, which take their time
        why = ""
        for placement in decision.placements:
            if not why.startswith(_MACHINE):  # else the next one would fare no better
                why = self._start(by_id[placement.task], placement, cards, state.rules)
            if why:
                reasons[placement.task] = why
        for id in decision.evictions:
            with suppress(Refused):  # it has ended meanwhile
                self._store.ask(id, EVICT)
        if decision.evictions:
            self._attempts.settle([])  # which passes it on
        self._explain(reasons)
        return _next_look(pending, reasons, state.now)

    def _state(self, pending: Sequence[Task]) -> tuple[State, dict[str, str]]:
        """What is decided on; and why of those tasks that it leaves out, because nobody can tell now what
        the cards are like."""
        live = self._store.tasks(states=LIVE)
        cards, leases, unseen = [], {}, {}
        wants_cards = any(task.need.cards for task in pending)
        if wants_cards:
            try:
                cards = self._ask()
                leases = {card.id: held.live_leases(card.id) for card in cards}
            except (RoostError, OSError) as error:  # tasks of the CPU do not wait for that
                unseen = {task.id: f"cards: {error}" for task in pending if task.need.cards}
                pending = [task for task in pending if not task.need.cards]
                cards, wants_cards = [], False
        ours = {task.id for task in live}
        others = {
            card: [Held(one.user, one.said.mb) for one in found if one.said.task not in ours]
            for card, found in leases.items()
        }
        now = time.time()
        state = State(
            now=now,
            pending=pending,
            live=live,
            cards=[without_holders(card, leases.get(card.id, ())) for card in cards],
            held=others,
            usage=usage.decayed(now) if wants_cards else {},
            states=self._store.states([id for task in pending for id in task.after]),
            mine=self._user,
            rules=rules_in(self._store),
        )
        return state, unseen

    def _start(self, task: Task, placement: Placement, cards: Mapping[str, Card], rules: Rules) -> str:
        """Starts one task; gives why it could not be, if it is to wait."""
        chosen = [cards[id] for id in placement.cards]
        self._reasons.pop(task.id, None)  # to start takes the reason away, whatever follows
        try:
            spare = max((spare_mb(card, rules) for card in chosen), default=0)
            begun = self._store.start(
                task, chosen, placement.mb, most_per_card=rules.most_per_card, spare_mb=spare
            )
        except Raced:
            return f"{_RACE} somebody was quicker; it is looked at again at once"
        try:
            session = self._executor.start(begun, chosen)
        except Refused as error:
            return self._put_back(begun, f"{_TAKEN} {error}")
        except Exception as error:  # noqa: BLE001  - one task that cannot be started holds up no other
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                return self._put_back(begun, f"{_MACHINE} {error}")
            if not isinstance(error, RoostError | OSError):
                traceback.print_exception(error)
            with suppress(Raced):  # as below
                why = f"it could not be started: {error}"
                self._store.move(begun, FAILED, reason=why, ended=time.time())
            return ""
        self._attempts.note_started(begun, session)
        return ""

    def _put_back(self, begun: Task, why: str) -> str:
        """Lets a task wait of which nothing has begun: that was no attempt."""
        with suppress(Raced):  # it is asked to end: that it has never begun is seen at the next look
            self._store.move(begun, PENDING, attempt=begun.attempt - 1)
        return why

    def _explain(self, reasons: dict[str, str]) -> None:
        new = {id: reason for id, reason in reasons.items() if self._reasons.get(id) != reason}
        if new:
            self._store.explain(new)
        self._reasons = dict(reasons)


def without_holders(card: Card, leases: Sequence[Any]) -> Card:
    """The card with those processes alone that no lease of their owner speaks for."""
    owners = {one.user for one in leases}
    return replace(card, users=tuple(user for user in card.users if user.name not in owners))


def _next_look(pending: Sequence[Task], reasons: Mapping[str, str], now: float) -> float:
    begins = [task.begin - now for task in pending if task.begin is not None and task.begin > now]
    waiting = [(task, reasons[task.id]) for task in pending if reasons.get(task.id)]
    if any(why.startswith(_RACE) for _, why in waiting):
        return _SOON_SECONDS
    may_change = any(task.need.cards or why.startswith((_TAKEN, _MACHINE)) for task, why in waiting)
    return max(_SOON_SECONDS, min([_LOOK_SECONDS if may_change else _SAFETY_SECONDS, *begins]))
