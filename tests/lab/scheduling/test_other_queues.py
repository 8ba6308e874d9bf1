"""Several queues on one machine: each daemon alone decides as one for all would."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from roost.devices import demand, lease_files
from roost.devices.demand import CardDemand, DemandFile, DemandRecord, QueueDemand
from roost.lab.policy.decision import decide
from roost.lab.policy.policy_state import Decision, PolicyState, Rules
from roost.lab.queue.task import RUNNING, STOPPING, Task
from roost.lab.scheduling.other_queues import PATIENCE_SECONDS, OtherQueues
from roost.operations.simulation.virtual_lab import VirtualLedger
from tests.lab.policy.policy_examples import NOW, cards, task

UIDS = {"ann": 1001, "bob": 1002, "cid": 1003}
NAMES = {uid: user for user, uid in UIDS.items()}


class Users:
    """Whose a post is: all of a test are written by one user."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._uids: dict[str, int] = {}
        self._look = demand.read_demands
        monkeypatch.setattr(demand, "read_demands", self.look)
        monkeypatch.setattr(lease_files, "user_name", NAMES.__getitem__)

    def give(self, post: DemandFile, user: str) -> None:
        self._uids[post.token] = UIDS[user]

    def look(self, *, exclude: str = "") -> list[QueueDemand]:
        return [replace(one, uid=self._uids[one.token]) for one in self._look(exclude=exclude)]


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Users:
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    return Users(monkeypatch)


class Daemon:
    """One queue in virtual time."""

    def __init__(self, user: str, users: Users, rules: Rules) -> None:
        self.user, self.rules = user, rules
        self.other_queues = OtherQueues()
        users.give(self.other_queues._demand_file, user)
        self.pending: dict[str, Task] = {}
        self.live: dict[str, Task] = {}

    def add(self, *tasks: Task) -> None:
        self.pending |= {one.id: msgspec.structs.replace(one, user=self.user) for one in tasks}

    def leases(self) -> Iterator[lease_files.CardLease]:
        for one in self.live.values():
            assert one.started is not None
            said = lease_files.LeaseRecord(
                pid=1, start_ticks=None, boot_id="", user=self.user, mb=one.reserved_mb,
                share=1.0, since=one.started, package="", task=one.id,
            )  # fmt: skip
            for card in one.cards:
                yield lease_files.CardLease(card, UIDS[self.user], one.id, True, 0.0, said)

    def look(self, state: PolicyState, leases: Sequence[lease_files.CardLease]) -> tuple[Decision, float]:
        own = replace(
            state, pending=list(self.pending.values()), live=list(self.live.values()), rules=self.rules
        )
        if not own.pending:
            self.other_queues.withdraw()
            return Decision((), (), {}), float("inf")
        joined = self.other_queues.with_other_queues(own, leases)
        whole = decide(joined)
        ours = self.other_queues.own_decision(whole)
        for placed in ours.placements:
            waiting = self.pending.pop(placed.task)
            self.live[placed.task] = msgspec.structs.replace(
                waiting, state=RUNNING, cards=placed.cards, reserved_mb=placed.mb, started=state.now
            )
        return ours, self.other_queues.publish_demand(joined, whole)


class Machine:
    """Daemons that look whenever something has changed, in any order."""

    def __init__(self, users: Users, names: Sequence[str], num_cards: int, **rules: Rules) -> None:
        self.daemons = {name: Daemon(name, users, rules.get(name, Rules())) for name in names}
        self.cards = cards(num_cards)
        self.now, self.ledger, self.random = NOW, VirtualLedger(at=NOW), random.Random(0)
        self.starts: list[str] = []
        self.patience = float("inf")

    def settle(self, *, without: Sequence[str] = ()) -> None:
        """Each looks until none starts anything."""
        awake = [daemon for name, daemon in self.daemons.items() if name not in without]
        changed = True
        while changed:
            changed, self.patience = False, float("inf")
            self.random.shuffle(awake)
            for daemon in awake:
                leases = [lease for each in self.daemons.values() for lease in each.leases()]
                assert len({lease.card for lease in leases}) == len(leases), "two on one card"
                state = PolicyState(
                    now=self.now, pending=(), cards=self.cards, usage=dict(self.ledger.decayed)
                )
                decision, patience = daemon.look(state, leases)
                self.starts += [one.task for one in decision.placements]
                changed |= bool(decision.placements)
                self.patience = min(self.patience, patience)

    def go_on(self, seconds: float) -> None:
        rates = {
            name: float(sum(len(one.cards) for one in each.live.values()))
            for name, each in self.daemons.items()
        }
        self.now += seconds
        self.ledger.advance(self.now, rates)

    def close(self) -> None:
        for daemon in self.daemons.values():
            daemon.other_queues.withdraw()


def many(user: str, count: int, *, since: float = NOW) -> list[Task]:
    return [task(f"{user}{number:04d}", submitted=since + number / 1000) for number in range(count)]


def run_for(machine: Machine, seconds: float) -> Iterator[None]:
    """From one end of a task to the next; yields after each."""
    random_, until, ends = random.Random(1), machine.now + seconds, dict[str, float]()
    while machine.now < until:
        machine.settle()
        yield
        live = {id: each for each in machine.daemons.values() for id in each.live}
        for id in live:
            ends.setdefault(id, machine.now + random_.uniform(300, 3600))
        at = min([until, machine.now + machine.patience, *(ends[id] for id in live)])
        machine.go_on(at - machine.now)
        for id, each in live.items():
            if ends[id] <= machine.now:
                del each.live[id]


@pytest.mark.parametrize("hours", [6, pytest.param(24, marks=pytest.mark.soak)])
def test_three_daemons_give_equal_shares_though_one_has_500_tasks(users: Users, hours: int) -> None:
    machine = Machine(users, list(UIDS), 4)
    machine.daemons["ann"].add(*many("ann", 500))
    machine.settle()
    assert machine.starts == ["ann0000", "ann0001", "ann0002", "ann0003"], "nobody else is there"
    machine.daemons["bob"].add(*many("bob", 170, since=NOW + 60))
    machine.daemons["cid"].add(*many("cid", 170, since=NOW + 60))
    for _ in run_for(machine, hours * 3600):
        assert sum(len(each.live) for each in machine.daemons.values()) == 4, "no card is left to nobody"
    used = machine.ledger.total
    assert sum(used.values()) == pytest.approx(4 * hours * 3600)
    equal = sum(used.values()) / 3
    assert all(abs(each - equal) <= 0.05 * equal for each in used.values()), used
    machine.close()


def test_two_on_one_card_take_turns(users: Users) -> None:
    machine = Machine(users, ["ann", "bob"], 1)
    for name, daemon in machine.daemons.items():
        daemon.add(*many(name, 6, since=NOW - (10 if name == "ann" else 5)))
    while any(each.pending or each.live for each in machine.daemons.values()):
        machine.settle()
        machine.go_on(1800)
        for each in machine.daemons.values():
            each.live.clear()
    assert [id[:3] for id in machine.starts] == ["ann", "bob"] * 6
    machine.close()


def test_a_priority_is_no_concern_of_others(users: Users) -> None:
    machine = Machine(users, ["ann", "bob"], 1)
    machine.ledger.decayed["ann"] = 50.0
    machine.daemons["ann"].add(task("a", submitted=NOW - 900))
    machine.settle()
    machine.daemons["ann"].add(task("a0"), task("a9", priority=9, submitted=NOW))
    machine.daemons["bob"].add(task("b", priority=-9))
    machine.settle()
    for daemon in ("ann", "bob"):
        machine.daemons[daemon].live.clear()
        machine.settle()
    assert machine.starts == ["a", "b", "a9"]
    machine.close()


def test_cards_are_kept_for_a_task_of_several_of_somebody_else(users: Users) -> None:
    machine = Machine(users, ["ann", "bob"], 2)
    machine.ledger.decayed["ann"] = 50.0
    machine.daemons["ann"].add(task("a1", limit=600), task("a2", limit=60), task("a3", limit=900))
    machine.settle()
    machine.daemons["bob"].add(task("gang", gpus=2, limit=60))
    machine.settle()
    assert sorted(machine.starts) == ["a1", "a2"]
    del machine.daemons["ann"].live["a2"]
    machine.daemons["ann"].add(task("short", limit=300))
    machine.settle()
    assert machine.starts[2:] == ["short"], "it ends before the other task could start; a3 would not"
    why = (
        machine.daemons["ann"]
        .look(PolicyState(now=NOW, pending=(), cards=machine.cards), [])[0]
        .reasons["a3"]
    )
    assert "bob" in why or why.startswith("cards:")
    machine.close()


def test_what_makes_room_for_others_does_so_for_those_of_other_queues(users: Users) -> None:
    machine = Machine(users, ["ann", "bob"], 1)
    ann, bob = machine.daemons["ann"], machine.daemons["bob"]
    ann.add(task("a", opportunistic=True))
    machine.settle()
    bob.add(task("b", opportunistic=True))
    ann.add(task("waits", opportunistic=True))
    machine.settle()

    def evicted() -> tuple[str, ...]:
        state = PolicyState(now=NOW, pending=(), cards=machine.cards)
        return ann.look(state, list(ann.leases()))[0].preemptions

    assert evicted() == ()
    bob.add(task("c"))
    machine.settle()
    assert evicted() == ("a",)
    machine.close()


def test_others_are_not_woken_at_each_look_by_what_is_about_to_end(users: Users, tmp_path: Path) -> None:
    machine = Machine(users, ["ann"], 1)
    ann = machine.daemons["ann"]
    ann.add(task("a"), task("b"))
    machine.settle()
    ann.live["a"] = msgspec.structs.replace(ann.live["a"], state=STOPPING)
    machine.go_on(1)
    told = set()
    for _ in range(5):
        machine.settle()
        (path,) = (tmp_path / "leases" / "wants").iterdir()
        told.add(path.stat().st_ino)
        machine.go_on(1)
    (posted,) = demand.read_demands()
    assert len(told) == 1 and posted.record.ends == {"a": NOW + 70}
    machine.close()


def test_a_card_that_they_do_not_use_is_not_kept_for_them(users: Users) -> None:
    machine = Machine(users, ["ann", "bob"], 2, bob=Rules(allowed=("GPU-1",)))
    machine.ledger.decayed["ann"] = 50.0
    machine.daemons["bob"].add(task("b1"), task("b2"))
    machine.settle()
    machine.daemons["ann"].add(task("a1"), task("a2"))
    machine.settle()
    assert machine.starts == ["b1", "a1"]
    machine.close()


def test_who_does_not_take_what_is_his_is_passed_over(users: Users) -> None:
    machine = Machine(users, ["ann", "bob"], 1)
    machine.ledger.decayed["ann"] = 50.0
    machine.daemons["bob"].add(task("b"))
    bob = machine.daemons["bob"]
    bob.look(PolicyState(now=NOW, pending=()), [])  # it has seen no card yet
    bob.other_queues._demand_file.publish(
        DemandRecord(wants=(CardDemand(cards=1, since=0.0),))
    )  # and is stopped
    ann = machine.daemons["ann"]
    ann.add(*many("ann", 2))
    machine.settle(without=["bob"])
    assert machine.starts == [] and machine.patience == PATIENCE_SECONDS
    machine.go_on(PATIENCE_SECONDS)
    machine.settle(without=["bob"])
    assert machine.starts == [] and machine.patience == 0.0, "looked at again at once"
    machine.settle(without=["bob"])
    assert machine.starts == ["ann0000"]
    ann.live.clear()
    machine.go_on(50)
    machine.settle(without=["bob"])
    assert machine.starts == ["ann0000", "ann0001"]
    ann.live.clear()
    ann.add(*many("more", 2))
    machine.go_on(3600)
    machine.settle(without=["bob"])
    assert len(machine.starts) == 2, "he gets another chance"
    machine.settle()
    assert machine.starts[2:] == ["b"], "and is believed again once he has taken something"
    bob.live.clear()
    bob.add(task("b2"))
    bob.other_queues._demand_file.publish(DemandRecord(wants=(CardDemand(cards=1, since=0.0),)))
    machine.ledger.decayed["ann"] = 1e6
    machine.settle(without=["bob"])
    assert machine.starts[3:] == []
    machine.close()


def test_a_clock_that_is_put_back_keeps_no_card_free_for_days(users: Users) -> None:
    """F17."""
    machine = Machine(users, ["ann", "bob"], 1)
    machine.ledger.decayed["ann"] = 50.0
    bob, ann = machine.daemons["bob"], machine.daemons["ann"]
    bob.other_queues._demand_file.publish(DemandRecord(wants=(CardDemand(cards=1, since=0.0),)))
    ann.add(*many("ann", 1, since=NOW - 2 * 86400))
    machine.settle(without=["bob"])
    machine.now -= 86400
    machine.settle(without=["bob"])
    assert machine.starts == [] and machine.patience == PATIENCE_SECONDS
    bob.other_queues.withdraw()
    machine.close()


def test_an_old_claim_is_no_older_than_may_be(users: Users) -> None:
    post = DemandFile()
    users.give(post, "bob")
    post.publish(DemandRecord(wants=(CardDemand(cards=2, since=0.0), CardDemand(cards=1, mb=5, since=NOW))))
    other_queues = OtherQueues()
    joined = other_queues.with_other_queues(PolicyState(now=NOW, pending=()), [])
    assert [one.submitted for one in joined.pending] == [NOW - 86400, NOW]
    assert [(one.need.whole, one.need.memory_mb) for one in joined.pending] == [(True, None), (False, 5)]
    post.withdraw()


def test_only_what_waits_for_room_is_told(users: Users) -> None:
    machine = Machine(users, ["ann"], 1)
    ann = machine.daemons["ann"]
    ann.add(task("runs", limit=500), task("cpu", gpus=0), task("cpu2", gpus=0))
    machine.settle()
    assert machine.starts == ["cpu", "runs"]
    ann.add(task("held", held=True), task("begin", begin=NOW + 60), task("large", gpus=5))
    ann.add(task("waits", gb=8, opportunistic=True), task("first", priority=3))
    machine.settle()
    (posted,) = demand.read_demands()
    assert [(one.mb, one.priority, one.opportunistic) for one in posted.record.wants] == [
        (None, 3, False),
        (8192, 0, True),
    ]
    machine.settle()
    (posted,) = demand.read_demands()
    assert posted.record.ends == {"runs": NOW + 500}
    machine.close()
    assert demand.read_demands() == []
