"""What the policy promises, over many random events."""

from __future__ import annotations

import os
import random
import runpy
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.devices.card import Card, CardProcess
from roost.devices.resource_request import ResourceRequest
from roost.lab.policy import decision as deciding
from roost.lab.policy.card_capacity import capacity_mb
from roost.lab.policy.decision import Policy
from roost.lab.policy.host_share import HostShare
from roost.lab.policy.pass_cache import CardCache
from roost.lab.policy.policy_state import (
    Decision,
    Expectation,
    OtherLease,
    PolicyState,
    ReservedWindow,
    Rules,
)
from roost.lab.policy.queue_order import Candidates, UserCharges, first_of_each_user
from roost.lab.policy.task_groups import TaskGroups
from roost.lab.queue.task import RUNNING, STOPPING, Task
from roost.operations.simulation.virtual_lab import Job, VirtualLab
from tests.lab.policy.policy_examples import GB, NOW, card, cards, task

ROOT = Path(__file__).parents[3]
KINDS = {
    "begin", "cards", "closed", "cores", "dependency", "drained", "foreign", "held", "host",
    "impossible", "memory",
    "reservation", "reserved", "sweep", "trouble",
}  # fmt: skip


class _Slow(deciding._Pass):
    """Offers tasks in their order wherever one might have to be told why it waits."""

    def _select(self, candidates: Candidates, charges: UserCharges | None) -> Candidates:
        found: Candidates = []
        for group, tasks in candidates:
            group.reason = self.full_reasons.get(group.shape, group.reason)
            outlasts = self.reservation is not None and self._outlasts_reservation(group)
            if not group.reason and not self.free_capacity.has_fit(
                group.shape, self._all_barred(outlasts, frozenset())
            ):
                tasks = first_of_each_user(tasks) if self.reservation is None else tasks[:1]
            if not group.reason:
                found.append((group, tasks))
        return found

    def _select_for_cpu(self, candidates: Candidates, charges: UserCharges | None) -> Candidates:
        return [one for one in candidates if not one[0].reason]


def slowly(state: PolicyState) -> Decision:
    """The same decision by fewer lines: nothing is kept of the last one, and hardly anything passed over."""
    return _Slow(state, CardCache(state)).decide(TaskGroups(state))


class Machine:
    """Tasks that come, start, end, are stopped and fail; others that come and go on the cards."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.policy = Policy()
        self.is_shared, self.closes = self.random.choice(((False, False), (True, False), (True, True)))
        self.closed: dict[str, frozenset[str]] = {}
        self.now = NOW
        self.rules = Rules(
            foreign=self.random.choice(("avoid", "fit", "ignore")),
            most_per_card=self.random.choice((None, 1, 3)),
            cores=self.random.randrange(5),
            host_memory_mb=self.random.choice((None, 8 * GB, 32 * GB)),
        )
        self.with_host = self.random.random() < 0.6
        self.totals = [self.random.choice((8, 24, 80, 0)) for _ in range(self.random.randrange(1, 7))]
        self.pending: dict[str, Task] = {}
        self.live: dict[str, Task] = {}
        self.states: dict[str, str] = {}
        self.held: defaultdict[str, list[OtherLease]] = defaultdict(list)
        self.users: dict[int, tuple[CardProcess, ...]] = {}
        self.expected: dict[str, Expectation] = {}
        self.count = 0
        self.kinds: Counter[str] = Counter()

    def event(self) -> None:
        """Something happens, and a decision is made and carried out."""
        self.now += self.random.expovariate(1 / 300)
        kind = self.random.choices(
            (self.come, self.end, self.foreign, self.lease, self.rule, self.change), (50, 35, 5, 5, 5, 10)
        )[0]
        kind()
        state = self.state()
        decision = self.policy.decide(state)
        self.check(state, decision)
        for placed in decision.placements:
            one = self.pending.pop(placed.task)
            self.live[one.id] = msgspec.structs.replace(
                one, state=RUNNING, cards=placed.cards, reserved_mb=placed.mb, started=self.now
            )
        for id in decision.preemptions:
            self.live[id] = msgspec.structs.replace(self.live[id], state=STOPPING)

    def state(self) -> PolicyState:
        machine = []
        for number, gb in enumerate(self.totals):
            used = sum(user.memory_mb or 0 for user in self.users.get(number, ()))
            machine.append(card(number, gb, free_mb=max(0, gb * GB - used), users=self.users.get(number, ())))
        return PolicyState(
            now=self.now,
            pending=list(self.pending.values()),
            live=list(self.live.values()),
            cards=machine,
            other_leases=self.held,
            usage={"ann": 5000.0, "bob": 100.0},
            expected=self.expected,
            dependency_states=self.states,
            closed_cards=self.closed,
            has_other_queues=self.is_shared,
            rules=self.rules,
        )

    def come(self) -> None:
        pick = self.random.choice
        self.count += 1
        need = ResourceRequest(
            cards=pick((0, 1, 1, 1, 2, 3)),
            cores=pick((None, None, 1, 2, 4)) if self.with_host else None,
            host_memory_mb=pick((None, None, 1 * GB, 6 * GB, 20 * GB)) if self.with_host else None,
            memory_mb=pick((None, 500, 3000, 7000, 20_000, 70_000)),
            whole=self.random.random() < 0.1,
            time_limit=pick((None, 300.0, 3000.0, 9000.0)),
            opportunistic=self.random.random() < 0.2,
        )
        new = task(
            f"{self.count:06d}",
            user=pick(("ann", "bob", "cid")),
            priority=pick((0, 0, 0, 1)),
            submitted=self.now,
            sweep=pick((None, None, "sweep")),
            most_parallel=2,
            held=self.random.random() < 0.05,
            begin=pick((None, None, None, self.now + 500)),
            after=(pick(list(self.states)),) if self.states and self.random.random() < 0.1 else (),
        )
        self.pending[new.id] = msgspec.structs.replace(new, need=need)
        self.states[new.id] = "pending"
        if self.random.random() < 0.2:
            self.expected[new.id] = Expectation(pick((None, 2000)), pick((None, 600.0)))
        if self.closes and self.random.random() < 0.1:
            self.closed[new.id] = frozenset({f"GPU-{self.random.randrange(len(self.totals))}"})

    def change(self) -> None:
        """Somebody holds or releases one that waits, or gives it another priority."""
        if self.pending:
            one = self.pending[self.random.choice(list(self.pending))]
            change: dict[str, Any] = self.random.choice(({"held": not one.held}, {"priority": 1}))
            self.pending[one.id] = msgspec.structs.replace(one, **change)

    def end(self) -> None:
        if not self.live:
            return
        one = self.live.pop(self.random.choice(list(self.live)))
        if one.state == STOPPING:
            self.pending[one.id] = msgspec.structs.replace(
                one, state="pending", cards=(), reserved_mb=None, started=None
            )
        else:
            self.states[one.id] = self.random.choice(("succeeded", "succeeded", "failed"))

    def foreign(self) -> None:
        number = self.random.randrange(len(self.totals))
        if not any(f"GPU-{number}" in one.cards for one in self.live.values()):
            memory = self.random.choice((None, 1000, 5000))
            self.users[number] = self.random.choice(((), (CardProcess(1, "eve", memory),)))

    def lease(self) -> None:
        """Others admit themselves by what is held, as everybody does."""
        number = self.random.randrange(len(self.totals))
        id = f"GPU-{number}"
        if self.held[id]:
            self.held[id].clear()
        elif not any(id in one.cards for one in self.live.values()):
            self.held[id].append(OtherLease("bob", self.random.choice((None, 2000))))

    def rule(self) -> None:
        id = f"GPU-{self.random.randrange(len(self.totals))}"
        window = ReservedWindow(card=id, user="bob", begin=self.now + 1000, end=self.now + 3000)
        change: dict[str, Any] = self.random.choice(
            ({"drained": (id,)}, {"drained": ()}, {"reserved": (window,)}, {"reserved": ()})
        )
        self.rules = msgspec.structs.replace(self.rules, **change)

    def check(self, state: PolicyState, decision: Decision) -> None:
        placed = {one.task for one in decision.placements}
        assert placed.isdisjoint(decision.reasons)
        assert placed | decision.reasons.keys() == {one.id for one in state.pending}
        for reason in decision.reasons.values():
            kind, _, words = reason.partition(": ")
            assert kind in KINDS and words and "\n" not in reason
            self.kinds[kind] += 1
        assert all(self.live[id].need.opportunistic for id in decision.preemptions)
        assert decision == slowly(state), "what was kept or passed over has changed the decision"
        self.check_cards(state, decision)

    def check_cards(self, state: PolicyState, decision: Decision) -> None:
        taken: defaultdict[str, list[int | None]] = defaultdict(list)
        for one in state.live:
            for id in one.cards:
                taken[id].append(one.reserved_mb)
        for id, leases in state.other_leases.items():
            taken[id] += [lease.mb for lease in leases]
        known = {one.id: one for one in state.cards}
        new: defaultdict[str, list[int | None]] = defaultdict(list)
        needs = {one.id: one.need.cards for one in state.pending}
        for placed in decision.placements:
            assert len(set(placed.cards)) == len(placed.cards) == needs[placed.task]
            assert self.closed.get(placed.task, frozenset()).isdisjoint(placed.cards)
            for id in placed.cards:
                new[id].append(placed.mb)
        for id, given in new.items():
            self.check_card(known[id], taken[id], given)
        self.check_host(state, decision)

    def check_host(self, state: PolicyState, decision: Decision) -> None:
        """Nothing is given twice; a task that starts finds as much as it takes."""
        placed = {one.task for one in decision.placements}
        shares = [HostShare.from_need(one.need) for one in state.live]
        new = [HostShare.from_need(one.need) for one in state.pending if one.id in placed]
        for index, most in enumerate((self.rules.cores, self.rules.host_memory_mb)):
            started = sum(share[index] for share in new)
            assert not started or most is None or sum(share[index] for share in shares) + started <= most

    def check_card(self, one: Card, before: list[int | None], new: list[int | None]) -> None:
        both = before + new
        rules = self.rules
        assert one.id not in rules.drained and not (one.users and rules.foreign == "avoid")
        if None in both:
            assert len(both) == 1 and not (one.users and rules.foreign != "ignore")
        else:
            used = sum(user.memory_mb or 0 for user in one.users) if rules.foreign != "ignore" else 0
            assert one.total_mb and sum(filter(None, both)) + used <= capacity_mb(one, rules)
        assert rules.most_per_card is None or len(both) <= rules.most_per_card


def test_never_too_much_on_a_card_and_a_reason_for_everybody() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(30):
        machine = Machine(seed)
        for _ in range(100):
            machine.event()
        kinds += machine.kinds
    assert kinds.keys() >= KINDS - {"trouble"}


@pytest.mark.soak
def test_never_too_much_on_a_card_in_100000_events() -> None:
    for seed in range(500):
        machine = Machine(1000 + seed)
        for _ in range(200):
            machine.event()


def stream(count: int, *, user: str = "ann", every: float = 50.0, seed: int = 0) -> list[Job]:
    """Small tasks with limits of up to an hour, more than four cards can do."""
    random_ = random.Random(seed)
    made = []
    for number in range(count):
        limit = random_.uniform(600, 3600)
        small = task(f"s{number:05d}", limit=limit, gb=random_.choice((None, 8, 20)), user=user)
        made.append(
            Job(msgspec.structs.replace(small, submitted=NOW + number * every), limit * random_.random())
        )
    return made


@pytest.mark.parametrize("seed", range(4))
def test_a_gang_in_a_stream_of_small_tasks_starts_within_the_longest_limit(seed: int) -> None:
    gang = Job(task("gang", gpus=4, submitted=NOW + 5000), 60.0)
    lab = VirtualLab([*stream(300, seed=seed), gang], cards(4), Rules())
    its_turn = None
    for state, decision in lab.passes():
        if its_turn is None and decision.first_blocked == "gang":
            its_turn = state.now
        if gang.started is not None:
            break
    assert len(lab.pending) > 50, "the stream has dried up: the gang did not have to hold its place"
    assert its_turn is not None and gang.started is not None and gang.started <= its_turn + 3600


def test_a_gang_of_a_user_who_has_had_most_starts_after_the_longest_wait() -> None:
    gang = Job(task("gang", gpus=4, user="hog", submitted=NOW), 60.0)
    lab = VirtualLab([*stream(3000), gang], cards(4), Rules(longest_wait_of_several=7200.0))
    lab.ledger.decayed["hog"] = 1e9
    for _ in lab.passes():
        if gang.started is not None:
            break
    assert gang.waited is not None and 3600 < gang.waited <= 7200 + 3600


def host_stream(count: int, *, gpus: int, seed: int = 0) -> list[Job]:
    """Small tasks of two cores and 8 GB, more than a host of 8 cores can do."""
    random_ = random.Random(seed)
    made = []
    for number in range(count):
        limit = random_.uniform(600, 3600)
        small = task(
            f"h{gpus}-{number:05d}",
            gpus=gpus,
            gb=4 if gpus else None,
            cores=2,
            host_mb=8 * GB,
            limit=limit,
            submitted=NOW + number * 100.0,
        )
        made.append(Job(small, limit * random_.random()))
    return made


@pytest.mark.parametrize("gpus", [0, 1])
@pytest.mark.parametrize("stream_gpus", [0, 1])
@pytest.mark.parametrize("large", [{"cores": 8}, {"cores": 1, "host_mb": 32 * GB}])
def test_small_shares_of_the_host_do_not_starve_a_large_one(
    gpus: int, stream_gpus: int, large: dict[str, int]
) -> None:
    """With or without a card, behind tasks with or without one: it starts once those before it have ended."""
    one = Job(task("large", gpus=gpus, submitted=NOW + 5000, **large), 60.0)
    rules = Rules(cores=8, host_memory_mb=32 * GB)
    lab = VirtualLab([*host_stream(300, gpus=stream_gpus), one], cards(4), rules)
    for state, _ in lab.passes():
        shares = [HostShare.from_need(task.need) for task in state.live]
        assert sum(share.cores for share in shares) <= 8 and sum(share.mb for share in shares) <= 32 * GB
        if one.started is not None:
            break
    assert len(lab.pending) > 20, "the stream has dried up"
    waited_before = [job for job in lab.jobs.values() if job.task.submitted < NOW + 5000]
    longest = max(job.task.need.time_limit or 0.0 for job in waited_before)
    last_start = max(job.started for job in waited_before if job.started is not None)
    assert one.started is not None and one.started <= max(last_start, NOW + 5000) + longest


def test_the_same_jobs_give_the_same_decisions() -> None:
    def run() -> list[Decision]:
        jobs = [*stream(150), *stream(50, user="bob", seed=1)]
        for number, job in enumerate(jobs):
            job.task = msgspec.structs.replace(job.task, id=f"{number}")
        return [decision for _, decision in VirtualLab(jobs, cards(3), Rules()).passes()]

    assert run() == run()


def test_three_users_get_equal_shares_though_one_has_500_tasks() -> None:
    """Over any 24 hours, as long as all three have something to do."""
    random_ = random.Random(0)
    jobs = []
    for user, count in (("hog", 500), ("ann", 290), ("bob", 290)):
        for number in range(count):
            one = task(f"{user}{number:04d}", user=user, submitted=NOW + (0 if user == "hog" else 60))
            jobs.append(Job(one, random_.uniform(300, 3600)))
    lab = VirtualLab(jobs, cards(4), Rules())
    seen = []
    for state, _ in lab.passes():
        seen.append((state.now, [lab.ledger.total[user] for user in ("hog", "ann", "bob")]))
        if {task.user for task in lab.pending.values()} < {"hog", "ann", "bob"} and state.now > NOW + 60:
            break
    starts = [one for one in seen if one[0] <= seen[-1][0] - 86400]
    assert starts[-1][0] - NOW > 12 * 3600
    for start, before in starts:
        after = next(used for now, used in seen if now >= start + 86400)
        used = [one - another for one, another in zip(after, before, strict=True)]
        assert all(abs(one - sum(used) / 3) <= 0.05 * sum(used) / 3 for one in used)


def test_tasks_of_the_cpu_start_though_those_of_cards_wait() -> None:
    jobs = [
        *stream(50, every=0.0),
        *[Job(task(f"c{n}", gpus=0, submitted=NOW + n * 100), 50.0) for n in range(20)],
    ]
    for _ in (lab := VirtualLab(jobs, cards(1), Rules(cores=1))).passes():
        pass
    assert [lab.jobs[f"c{n}"].waited for n in range(20)] == [0.0] * 20


@pytest.mark.parametrize("every", [0.0, 60.0])
def test_two_processes_decide_the_same(every: float) -> None:
    """Whatever the order of their sets and dicts: the whole simulation of the benchmark, twice."""
    program = (
        "import random, sys; sys.path.insert(0, 'bench'); import policy; "
        f"policy.simulate('', policy.tasks(150, random.Random(7), {every}), policy.cards(12))"
    )
    told = set()
    for seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        told.add(ran.stdout.split("|")[-2])
    assert len(told) == 1 and len(told.pop().strip()) == 12


@pytest.mark.parametrize("every", [0.0, 40.0, 400.0])
def test_what_is_passed_over_would_have_been_told_the_same(every: float) -> None:
    made = runpy.run_path(str(ROOT / "bench/policy.py"))
    jobs = made["tasks"](150, random.Random(2), every)
    rules = Rules(cores=3, most_per_card=4, longest_wait=40000.0, longest_wait_of_several=9000.0)
    for state, found in VirtualLab(jobs, made["cards"](8), rules).passes():
        assert found == slowly(state)
