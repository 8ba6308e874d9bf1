"""One pass over a queue, with real starts."""

from __future__ import annotations

import errno
import os
import random
import resource
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from roost.base.errors import Refused, RoostError
from roost.devices import demand, inventory, lease_files
from roost.devices.card import Card
from roost.devices.demand import CardDemand, DemandFile, DemandRecord
from roost.devices.lease import LeaseHolder, take
from roost.devices.resource_request import ResourceRequest
from roost.lab.executors.executor import AttemptStatus
from roost.lab.executors.local_executor import LocalExecutor
from roost.lab.policy import decision as deciding
from roost.lab.policy.decision import Policy, decide
from roost.lab.policy.policy_state import Decision, PolicyState
from roost.lab.policy.task_groups import TaskGroups
from roost.lab.queue.history import MemoryPeak
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import (
    EVICT,
    FAILED,
    KILL,
    LIVE,
    PENDING,
    RUNNING,
    STARTING,
    STOP,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    Task,
)
from roost.lab.scheduling.attempts import Attempts
from roost.lab.scheduling.scheduler import Scheduler, all_without_leased_processes, card_capacities
from roost.package.package import PackageFolder
from roost.supervisor import guard_start
from tests.lab.labs import Lab, kill_guard
from tests.lab.queued import alike, task
from tests.messages import Messages
from tests.waiting import wait_for


class Failing(LocalExecutor):
    """Cannot start anything, for a reason of the test's."""

    def __init__(self, fail: Callable[[Task], None]) -> None:
        super().__init__()
        self.fail, self.asked = fail, 0

    def start(self, task: Task, cards: Sequence[Card]) -> Callable[[], None]:
        self.asked += 1
        self.fail(task)
        return super().start(task, cards)


class Feigned:
    """Starts nothing; what it is asked of runs until somebody says that it is over."""

    def __init__(self) -> None:
        self.over: dict[str, str] = {}

    def start(self, task: Task, cards: Sequence[Card]) -> Callable[[], None]:
        self.over.pop(task.id, None)
        return lambda: None

    def poll(self, task: Task) -> AttemptStatus:
        return AttemptStatus(self.over.get(task.id, RUNNING), 1, started=time.time(), ended=time.time())

    def watch(self, task: Task) -> int | None:
        return None

    def request_stop(self, task: Task, *, now: bool) -> None:
        self.over[task.id] = STOPPED


@pytest.fixture
def store(lab: Lab) -> Iterator[QueueStore]:
    with lab.here(), lab.store() as store:
        yield store


@contextmanager
def scheduling(
    store: QueueStore,
    executor: LocalExecutor | None = None,
    ask: Callable[[], list[Card]] = inventory.read_cards,
) -> Iterator[Scheduler]:
    executor = executor or LocalExecutor()
    with closing(Attempts(store, executor, alike)) as attempts:
        yield Scheduler(store, executor, attempts, ask)

        def are_over() -> bool:
            attempts.refresh()
            return all(task.state not in LIVE for task in store.tasks())

        wait_for(are_over)


def states(store: QueueStore) -> list[tuple[str, int]]:
    return [(task.state, task.attempt) for task in store.tasks()]


def test_nobody_waits(store: QueueStore) -> None:
    with scheduling(store) as scheduler:
        assert scheduler.run() is None


def test_it_starts_what_has_room_and_explains_the_rest(lab: Lab, store: QueueStore) -> None:
    for _ in range(3):
        lab.queue("exit 0", need=ResourceRequest(cards=2))
    with scheduling(store) as scheduler:
        assert scheduler.run() in (5.0, 0.0), "0.0 if one of them has ended already"
        first, second, third = store.tasks()
        assert first.session == second.session == 1 and not set(first.cards) & set(second.cards)
        assert third.state == PENDING and third.reason.startswith("cards:")


def test_a_start_that_is_refused_is_no_attempt_and_keeps_its_reason(lab: Lab, store: QueueStore) -> None:
    task = lab.queue("until [ -e go ]; do sleep 0.01; done")
    lock_fd = PackageFolder.open(task.package).lock()
    with scheduling(store) as scheduler:
        for _ in range(2):
            assert scheduler.run() == 5.0
            assert states(store) == [(PENDING, 0)]
            assert store.task(task.id).reason.startswith("taken: ")
        os.close(lock_fd)
        scheduler.run()
        assert states(store) == [(RUNNING, 1)]
        (lab.folder / "go").touch()


def test_what_the_machine_lacks_is_waited_for(lab: Lab, store: QueueStore) -> None:
    def fail(_: Task) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    store.set_setting("rules", {"cores": 4})
    for _ in range(2):
        lab.queue("exit 0")
    executor = Failing(fail)
    with scheduling(store, executor) as scheduler:
        scheduler.run()
    assert states(store) == [(PENDING, 0)] * 2
    assert all("Too many open files" in task.reason for task in store.tasks())
    assert executor.asked == 1


def test_a_disk_that_may_come_back_is_waited_for_by_its_tasks_alone(lab: Lab, store: QueueStore) -> None:
    bad, good = lab.queue("exit 0"), lab.queue("exit 0")

    def fail(task: Task) -> None:
        if task.id == bad.id:
            raise OSError(errno.EROFS, "Read-only file system", task.package)

    with scheduling(store, Failing(fail)) as scheduler:
        assert scheduler.run() in (5.0, 0.0), "0.0 if the good one has ended already"
        assert store.task(bad.id).state == PENDING and store.task(good.id).session == 1
        reason = store.task(bad.id).reason
        assert reason.startswith("disk: ") and "[Errno 30] Read-only file system" in reason


@pytest.mark.parametrize("error", [RoostError("no such program"), KeyError("a defect")], ids=type)
def test_one_that_cannot_be_started_has_failed_and_holds_up_no_other(
    lab: Lab, store: QueueStore, error: Exception, capfd: pytest.CaptureFixture[str], messages: Messages
) -> None:
    bad, good = lab.queue("exit 0"), lab.queue("exit 0")

    def fail(task: Task) -> None:
        if task.id == bad.id:
            raise error

    with scheduling(store, Failing(fail)) as scheduler:
        scheduler.run()
        scheduler.run()
        assert store.task(good.id).session == 1
    assert store.task(bad.id).state == FAILED
    reason = store.task(bad.id).reason
    assert error.args[0] in reason
    messages.check(reason)
    assert ("Traceback" in capfd.readouterr().err) is isinstance(error, KeyError)


def test_a_start_whose_guard_is_killed_is_tried_again(
    lab: Lab, store: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = lab.queue("exit 0")
    with scheduling(store) as scheduler:
        with monkeypatch.context() as patch:
            patch.setattr(guard_start, "_send_spec", kill_guard)
            assert scheduler.run() == pytest.approx(0.05)
        again = store.task(task.id)
        assert (again.state, again.attempt) == (PENDING, 1)
        assert "during its start" in store.events(task=task.id)[-1].text
        scheduler.run()
    ended = store.task(task.id)
    assert (ended.state, ended.attempt, ended.session) == (SUCCEEDED, 2, 2)


def test_asked_to_stop_while_it_cannot_start_it_is_stopped(lab: Lab, store: QueueStore) -> None:
    def fail(task: Task) -> None:
        store.request_stop(task.id, STOP)
        raise Refused("taken")

    task = lab.queue("exit 0")
    executor = Failing(fail)
    with closing(Attempts(store, executor, alike)) as attempts:
        Scheduler(store, executor, attempts, inventory.read_cards).run()
        assert store.task(task.id).state == STARTING
        assert not attempts.all_watched, "it is looked at soon"
        attempts.refresh()
        assert store.task(task.id).state == STOPPED and attempts.all_watched


def test_tasks_of_the_cpu_do_not_wait_for_a_driver(lab: Lab, store: QueueStore) -> None:
    def ask() -> list[Card]:
        raise Refused("the driver does not tell")

    lab.queue("exit 0", need=ResourceRequest(cards=1))
    lab.queue("exit 0")
    with scheduling(store, ask=ask) as scheduler:
        assert scheduler.run() in (5.0, 0.0), "0.0 if one has ended already"
        waiting, started = store.tasks()
        assert (waiting.state, waiting.reason) == (PENDING, "cards: the driver does not tell")
        assert started.session == 1


def test_it_looks_again_when_a_task_may_begin(lab: Lab, store: QueueStore) -> None:
    lab.queue("exit 0", begin=time.time() + 30)
    with scheduling(store) as scheduler:
        seconds = scheduler.run()
    assert seconds is not None and 20 < seconds <= 30


def test_an_opportunistic_one_is_asked_at_once_to_make_room(lab: Lab, store: QueueStore) -> None:
    evicted = lab.queue("exec sleep 600", need=ResourceRequest(cards=4, opportunistic=True))
    with scheduling(store) as scheduler:
        scheduler.run()
        lab.queue("exit 0", need=ResourceRequest(cards=1))
        scheduler.run()
        assert store.task(evicted.id).state == STOPPING


def test_a_card_that_somebody_leaves_is_seen_at_once(lab: Lab, store: QueueStore) -> None:
    leases = take(inventory.read_cards(), None, LeaseHolder.this_process())
    task = lab.queue("exit 0", need=ResourceRequest(cards=1))
    with scheduling(store) as scheduler:
        scheduler.run()
        assert store.task(task.id).state == PENDING and scheduler.fd is not None
        while select.select([scheduler.fd], [], [], 0)[0]:  # of what it has told itself
            scheduler.run()
        leases.close()
        assert select.select([scheduler.fd], [], [], 10)[0]
        scheduler.run()
        assert store.task(task.id).session == 1
        scheduler.run()
        assert scheduler.fd is None, "nobody waits"


def test_a_card_is_left_to_whoever_has_waited_longer_elsewhere(lab: Lab, store: QueueStore) -> None:
    task = lab.queue("exit 0", need=ResourceRequest(cards=4))
    post = DemandFile()
    post.publish(DemandRecord(wants=(CardDemand(cards=1, since=time.time() - 60),)))
    with scheduling(store) as scheduler:
        assert scheduler.run() == 5.0
        assert store.task(task.id).reason.startswith("cards:")
        (posted,) = demand.read_demands(exclude=post.token)
        assert [want.cards for want in posted.record.wants] == [4]
        post.withdraw()
        scheduler.run()
        assert store.task(task.id).session == 1


def test_what_is_learned_is_given_and_held_from_the_start_on(lab: Lab, store: QueueStore) -> None:
    for _ in range(2):
        task = lab.task("until [ -e go ]; do sleep 0.01; done", need=ResourceRequest(cards=1))
        store.submit([msgspec.structs.replace(task, profile="p", scale=8.0)])
    store.set_setting("rules", {"allowed": ["SIM-0"]})
    store.add_peak(MemoryPeak("p", 8.0, 6_000.0, 400.0, 1, "simulated", 0.0))
    with scheduling(store) as scheduler:
        scheduler.run()
        assert [(task.cards, task.reserved_mb) for task in store.tasks()] == [(("SIM-0",), 7_300)] * 2
        (lab.folder / "go").touch()


def test_what_tasks_may_have_of_the_cards(lab: Lab, store: QueueStore) -> None:
    def refuse() -> list[Card]:
        raise Refused("the driver does not tell")

    store.set_setting("rules", {"allowed": ["SIM-0"], "safety_mb": 1000})
    assert card_capacities(store, inventory.read_cards, 16_000) == (15_000, 24 * 1024 - 1000)
    assert card_capacities(store, refuse, 16_000) == (15_000, 15_000)


def test_what_makes_room_is_who_has_saved_last(lab: Lab, store: QueueStore) -> None:
    with scheduling(store) as scheduler:
        for _ in range(2):
            lab.queue("exec sleep 600", need=ResourceRequest(cards=2, opportunistic=True))
        scheduler.run()
        first, second = store.tasks()
        wait_for(lambda: time.time() > (second.started or 0.0) + 0.01)
        (Path(first.package) / "Checkpoints" / "0").mkdir()
        lab.queue("exit 0", need=ResourceRequest(cards=2))
        scheduler.run()
        assert [store.task(one.id).state for one in (first, second)] == [STOPPING, RUNNING]
        store.request_stop(second.id, KILL)


def test_a_card_that_somebody_keeps_all_others_from_is_left_out(
    lab: Lab, store: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_files, "READ_WAIT_SECONDS", 0.05)
    first, *_ = inventory.read_cards()
    lab.queue("exit 0", need=ResourceRequest(cards=3))
    lab.queue("exit 0", need=ResourceRequest(cards=4))
    lease_files.make_shared_folder(lease_files.leases_folder())
    lease_files.card_folder(lease_files.leases_folder(), first.id).mkdir(mode=0o700)
    (lease_files.leases_folder() / "usage").mkdir(mode=0o700)
    with scheduling(store) as scheduler:
        scheduler.run()
        started, waiting = store.tasks()
        assert started.session == 1 and first.id not in started.cards
        assert waiting.session is None and waiting.reason.startswith("cards:")
    seen = all_without_leased_processes(
        inventory.read_cards(), lease_files.all_leases(lease_files.leases_folder())
    )
    assert [card.id for card in seen if card.trouble] == [first.id]


def test_a_lease_that_cannot_be_written_is_tried_again_later_and_not_because_of_itself(
    lab: Lab, store: QueueStore
) -> None:
    leases = [take([card], None, LeaseHolder.this_process()) for card in inventory.read_cards()]
    lab.queue("exit 0", need=ResourceRequest(cards=1))

    def fail(_: Task) -> None:
        raise Refused("it cannot be written")

    with scheduling(store, Failing(fail)) as scheduler:
        scheduler.run()
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            with pytest.raises(Refused, match=r"GPU 0 .*File too large"):
                take([inventory.read_cards()[0]], 1, LeaseHolder.this_process(), parent_token=leases[0].token)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert scheduler.fd is not None and select.select([scheduler.fd], [], [], 10)[0]
        lab.queue("exit 0")  # which has room, and fails to start
        scheduler.run()
        assert scheduler.fd is None
        for lease in leases:
            lease.close()


@pytest.mark.parametrize("seed", range(2))
def test_each_decision_is_that_of_who_reads_all_anew(
    store: QueueStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    reasons = set[str]()

    class Compared(Policy):
        def decide(self, state: PolicyState) -> Decision:
            decision = super().decide(state)
            pending, live = store.tasks(states=[PENDING]), store.tasks(states=LIVE)
            assert decision == decide(replace(state, pending=pending, live=live))
            reasons.update(reason.partition(":")[0] for reason in decision.reasons.values())
            return decision

    monkeypatch.setattr("roost.lab.scheduling.scheduler.Policy", Compared)
    random_, executor = random.Random(seed), Feigned()
    needs = [
        ResourceRequest(cards=n % 3, memory_mb=4000 * (n % 4) or None, opportunistic=n % 5 == 2)
        for n in range(12)
    ]
    store.set_setting("rules", {"cores": 2})
    with closing(Attempts(store, executor, alike)) as attempts:
        scheduler = Scheduler(store, executor, attempts, inventory.read_cards)
        for _ in range(40):
            store.submit([task(need=random_.choice(needs)) for _ in range(random_.randrange(5))])
            for one in random_.sample(found := store.tasks(), min(2, len(found))):
                with suppress(Refused):
                    order = random_.choice((EVICT, STOP, "", ""))
                    store.request_stop(one.id, order) if order else store.change(
                        one.id, held=random_.random() < 0.5
                    )
            live = store.tasks(states=LIVE)
            executor.over |= {one.id: SUCCEEDED for one in random_.sample(live, len(live) // 3)}
            attempts.refresh()
            scheduler.run()
        scheduler.close()
    assert {"cards", "cores", "held"} <= reasons


def test_what_waits_is_grouped_once(store: QueueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Counted(TaskGroups):
        def __init__(self, state: PolicyState) -> None:
            made.append(len(state.pending))
            super().__init__(state)

    monkeypatch.setattr(deciding, "TaskGroups", Counted)
    store.set_setting("rules", {"cores": 1})
    executor = Feigned()
    store.submit([task(need=ResourceRequest(cores=1)) for _ in range(30)])
    with closing(Attempts(store, executor, alike)) as attempts:
        scheduler = Scheduler(store, executor, attempts, inventory.read_cards)
        for count in range(29, 24, -1):
            attempts.refresh()
            scheduler.run()
            assert len(store.tasks(states=[PENDING])) == count
            executor.over |= {one.id: SUCCEEDED for one in store.tasks(states=LIVE)}
    assert made == [30]
