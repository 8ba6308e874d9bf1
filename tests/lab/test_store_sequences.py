"""Any sequence of all that can be asked of the queue."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from roost.base.errors import Refused
from roost.lab.queue.queue_store import ConcurrentChange, QueueStore
from roost.lab.queue.task import (
    ENDED,
    EVICT,
    KILL,
    LIVE,
    PENDING,
    RUNNING,
    STOP,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    Task,
)
from roost.lab.scheduling.scheduler import UnfinishedTaskCache
from tests.lab.queued import card, task

CARDS = [card(number, 10_000) for number in range(2)]
picks = st.integers(0, 1 << 16)


class Machine(RuleBasedStateMachine):
    """All that can be asked of a queue, in any order, by two who have opened it and know how it was."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "lab"
        self.stores = [QueueStore.open(path), QueueStore.open(path)]
        self.standing = UnfinishedTaskCache(self.stores[0])
        self.known: dict[str, Task] = {}
        self.old: list[Task] = []

    def teardown(self) -> None:
        if hasattr(self, "stores"):
            for store in self.stores:
                store.close()
            self.folder.cleanup()

    def some(self, pick: int, *states: str) -> Task | None:
        found = [one for one in self.known.values() if not states or one.state in states]
        return found[pick % len(found)] if found else None

    def keep(self, new: Task) -> None:
        before = self.known.get(new.id)
        if before is not None and before != new:
            assert new.version == before.version + 1
            self.old.append(before)
        self.known[new.id] = new

    @rule(pick=picks, waits=st.booleans())
    def submit(self, pick: int, waits: bool) -> None:
        other = self.some(pick)
        new = task(after=(other.id,) if waits and other else ())
        try:
            self.stores[0].submit([new])
        except Refused:
            assert other is not None
            assert other.state in ENDED
            assert other.state != SUCCEEDED
        else:
            self.keep(msgspec.structs.replace(new, seq=len(self.known) + 1))

    @rule(pick=picks, cards=st.sets(st.sampled_from([0, 1])), mb=st.sampled_from([None, 3000, 6000, 10_000]))
    def start(self, pick: int, cards: set[int], mb: int | None) -> None:
        if (found := self.some(pick, PENDING)) is None:
            return
        taken = [
            (other.reserved_mb or 10_000)
            for n in cards
            for other in self.known.values()
            if f"GPU-{n}" in other.cards
        ]
        try:
            begun = self.stores[1].start(found, [CARDS[n] for n in sorted(cards)], mb)
        except ConcurrentChange:
            assert taken
        else:
            assert begun.attempt == found.attempt + 1
            self.keep(begun)

    @rule(pick=picks, to=st.sampled_from([PENDING, RUNNING, STOPPING, *ENDED]))
    def move(self, pick: int, to: str) -> None:
        if (found := self.some(pick, *LIVE)) is None:
            return
        try:
            self.keep(self.stores[0].transition(found, to, reason=to))
        except ValueError:
            backwards = to in (RUNNING, STOPPING)
            assert backwards or (to == PENDING and found.stop_asked in (STOP, KILL))

    @rule(pick=picks, how=st.sampled_from([EVICT, STOP, KILL]))
    def ask(self, pick: int, how: str) -> None:
        if (found := self.some(pick)) is None:
            return
        try:
            self.keep(self.stores[1].request_stop(found.id, how))
        except Refused:
            assert found.state in ENDED

    @rule(pick=picks, held=st.booleans(), priority=st.integers(-5, 5))
    def change(self, pick: int, held: bool, priority: int) -> None:
        if (found := self.some(pick)) is None:
            return
        try:
            self.keep(self.stores[0].change(found.id, held=held, priority=priority))
        except Refused:
            assert found.state in ENDED

    @precondition(lambda self: self.old)
    @rule(pick=picks, to=st.sampled_from([PENDING, RUNNING, STOPPED, SUCCEEDED]))
    def act_on_what_has_changed(self, pick: int, to: str) -> None:
        stale = self.old[pick % len(self.old)]
        with pytest.raises((ConcurrentChange, ValueError)):
            if stale.state == PENDING and to != STOPPED:
                self.stores[0].start(stale, [], None)
            else:
                self.stores[0].transition(stale, to)

    @invariant()
    def both_know_all_and_nothing_is_given_twice(self) -> None:
        if not hasattr(self, "stores"):
            return
        for store in self.stores:
            assert {one.id: store.task(one.id) for one in store.tasks()} == self.known
        first = self.stores[0]
        assert self.standing.refresh() == (first.tasks(states=[PENDING]), first.tasks(states=LIVE))
        for one in self.known.values():
            assert bool(one.cards) <= (one.state in LIVE)
            assert not one.stop_asked or one.state in LIVE
        for place_ in CARDS:
            held = [one.reserved_mb for one in self.known.values() if place_.id in one.cards]
            assert held == [None] or sum(mb if mb is not None else 99_999 for mb in held) <= place_.total_mb


def run_machine(examples: int, steps: int) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    how = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=checks,
        database=None,
    )
    run_state_machine_as_test(Machine, settings=how)


def test_any_sequence() -> None:
    """Fault F27, with each sequence of calls as it comes."""
    run_machine(12, 25)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_any_long_sequence() -> None:
    run_machine(200, 50)
