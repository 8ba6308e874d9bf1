"""The cost of one decision of the scheduler.

    python bench/policy.py [--tasks 10000] [--cards 1000] [--passes 400] [--daemon]

The tasks have 20 users, 3 priorities, 1 to 8 cards, whole cards and seven sizes of memory, most of them a
time limit; one in ten is opportunistic, some use no card, some are of sweeps, some depend on others. The
cards are of two models. Time is virtual; a decision is made after each end of a task, as in the lab.

1. All tasks are queued at once on an empty machine. Each decision continues from the one before, as in
   `roost simulate`.
2. The tasks arrive one after another (Poisson), faster than the cards can run them; otherwise as 1.
3. All tasks are queued at once, and each decision is computed from scratch, as the daemon's first one is.
4. All tasks are queued on a full machine where nothing fits, so that a decision gives only wait reasons;
   computed from scratch.
5. Scheduling passes of the lab's daemon over a queue with all tasks, on 8 cards: it writes what has ended,
   reads the queue, decides, and writes what starts, but nothing is really started. Measured after each end of
   a task, and when nothing has changed. ``--daemon`` measures this alone.

``--whole`` runs simulations to the end of the last task, as `roost simulate` does, and prints CPU and wall
seconds and a digest of all decisions, which is the same each time.

    python bench/policy.py --whole [--tasks 10000] [--cards 1000]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from roost.devices.card import Card
from roost.devices.resource_request import ResourceRequest
from roost.lab.executors.executor import AttemptStatus
from roost.lab.policy.decision import Policy, decide
from roost.lab.policy.policy_state import Decision, PolicyState, Rules
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import LIVE, PENDING, RUNNING, SUCCEEDED, Task
from roost.lab.scheduling.attempts import Attempts
from roost.lab.scheduling.scheduler import Scheduler
from roost.operations.simulation.virtual_lab import Job, VirtualLab

SIZES = (2000, 4000, 6000, 8000, 12000, 16000, 20000, None)
LIMITS = (None, 1800.0, 3600.0, 4 * 3600.0, 12 * 3600.0, None, 24 * 3600.0, None)


def cards(count: int) -> list[Card]:
    models = (("H100", 80 * 1024), ("RTX 4090", 24 * 1024))
    return [Card(n, f"GPU-{n}", *models[n % 2], models[n % 2][1]) for n in range(count)]


def tasks(count: int, random_: random.Random, every: float) -> list[Job]:
    jobs: list[Job] = []
    needs: dict[ResourceRequest, ResourceRequest] = {}  # equal requests are one object, as in the queue
    now = 0.0
    for number in range(count):
        now += random_.expovariate(1 / every) if every else 0.0
        limit = random_.choice(LIMITS)
        need = ResourceRequest(
            cards=random_.choices((0, 1, 2, 4, 8), (5, 70, 12, 9, 4))[0],
            memory_mb=random_.choice(SIZES),
            time_limit=limit,
            opportunistic=random_.random() < 0.1,
        )
        task = Task(
            id=f"{number:026d}",
            name=f"task {number}",
            package="",
            user=f"user {random_.randrange(20)}",
            state=PENDING,
            need=needs.setdefault(need, need),
            priority=random_.choice((0, 0, 0, 1, -1)),
            submitted=now,
            sweep=f"sweep {number // 50}" if number % 10 == 0 else None,
            most_parallel=3 if number % 10 == 0 else None,
            after=(jobs[-1].task.id,) if jobs and number % 25 == 0 else (),
        )
        jobs.append(Job(task, random_.uniform(0.2, 1) * (limit or 6 * 3600.0)))
    return jobs


def print_times(name: str, found: list[tuple[float, float, int]], cards: int) -> None:
    shown = []
    for times in (sorted(cpu * 1e3 for cpu, *_ in found), sorted(wall * 1e3 for _, wall, _ in found)):
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        shown.append(f"{statistics.median(times):.1f} | {p99:.1f} | {times[-1]:.1f}")
    waiting = f"{max(pending for *_, pending in found):,} × {cards:,}"
    print(f"| {name} | {waiting} | {len(found)} | {' | '.join(shown)} |", flush=True)


def timed_policy(
    found: list[tuple[float, float, int]], decide: Callable[[PolicyState], Decision]
) -> Callable[[PolicyState], Decision]:
    """Wraps a policy: records CPU seconds, wall seconds and the number of pending tasks of each decision."""

    def timed_decide(state: PolicyState) -> Decision:
        began, cpu = time.perf_counter(), time.thread_time()
        decision = decide(state)
        found.append((time.thread_time() - cpu, time.perf_counter() - began, len(state.pending)))
        return decision

    return timed_decide


def simulate(name: str, jobs: list[Job], machine: list[Card]) -> None:
    """Simulates the jobs to the end of the last one, and prints a line."""
    digest, passes, began, cpu = hashlib.sha256(), 0, time.perf_counter(), time.process_time()
    for _, decision in VirtualLab(jobs, machine, Rules(cores=16, most_per_card=4)).passes():
        digest.update(repr((decision.placements, decision.preemptions, decision.first_blocked)).encode())
        passes += 1
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    shown = f"{len(jobs):,} | {passes:,} | {cpu:.1f} | {seconds:.1f} | {digest.hexdigest()[:12]}"
    print(f"| {name} | {shown} |", flush=True)


class FakeExecutor:
    """An executor that starts nothing: a task runs until its id is added to ``over``."""

    def __init__(self) -> None:
        self.over: set[str] = set()

    def start(self, task: Task, cards: Sequence[Card]) -> Callable[[], None]:
        return lambda: None

    def poll(self, task: Task) -> AttemptStatus:
        state = SUCCEEDED if task.id in self.over else RUNNING
        return AttemptStatus(state, 1, started=time.time(), ended=time.time())

    def watch(self, task: Task) -> int | None:
        return None

    def request_stop(self, task: Task, *, now: bool) -> None:
        self.over.add(task.id)


def measure_daemon(jobs: list[Job], machine: list[Card], passes: int) -> None:
    """Measures scheduling passes of the daemon over a queue."""
    found: dict[str, list[tuple[float, float, int]]] = {"a task has ended": [], "nothing has changed": []}
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"ROOST_STATE": folder, "ROOST_LEASES": f"{folder}/leases"}
        executor = FakeExecutor()
        with (
            QueueStore.open(Path(folder) / "lab") as store,
            closing(Attempts(store, executor, lambda mb: (mb, mb))) as attempts,
            closing(Scheduler(store, executor, attempts, lambda: machine)) as scheduler,
        ):
            store.set_setting("rules", {"cores": 16, "most_per_card": 4})
            store.submit([msgspec.structs.replace(job.task, package=f"{folder}/none") for job in jobs])
            scheduler.run()
            for name, times in found.items():
                for _ in range(passes):
                    ended = [task.id for task in store.tasks(states=LIVE)[: name.startswith("a task")]]
                    executor.over.update(ended)
                    waiting = store.state_counts()[PENDING]
                    began, cpu = time.perf_counter(), time.thread_time()
                    attempts.refresh(ended)
                    scheduler.run()
                    times.append((time.thread_time() - cpu, time.perf_counter() - began, waiting))
    for name, times in found.items():
        print_times(f"the daemon: {name}", times, len(machine))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--cards", type=int, default=1_000)
    parser.add_argument("--passes", type=int, default=400)
    parser.add_argument("--whole", action="store_true", help="only whole simulations")
    parser.add_argument("--daemon", action="store_true", help="only passes of the daemon")
    arguments = parser.parse_args()
    machine, random_ = cards(arguments.cards), random.Random(0)
    if arguments.whole:
        print("| tasks | number | passes | CPU, s | wall, s | digest |\n|---|---|---|---|---|---|")
        for name, every in (("all queued at once", 0.0), ("one after another, cards for all", 15.0)):
            simulate(name, tasks(arguments.tasks, random_, every), machine)
        return
    print("| tasks | most pending × cards | passes | CPU, ms: p50 | p99 | max | wall, ms: p50 | p99 | max |")
    print("|---|---|---|---|---|---|---|---|---|")
    if arguments.daemon:
        measure_daemon(tasks(arguments.tasks, random_, 0.0), cards(8), arguments.passes)
        return
    for name, every, policy in (
        ("all queued at once", 0.0, Policy().decide),
        ("one after another", 2.0, Policy().decide),
        ("all queued at once, from scratch", 0.0, decide),
    ):
        found: list[tuple[float, float, int]] = []
        rules = Rules(cores=16, most_per_card=4)
        lab = VirtualLab(
            tasks(arguments.tasks, random_, every), machine, rules, decide=timed_policy(found, policy)
        )
        for _ in zip(
            range(arguments.passes if not every else 10 * arguments.passes), lab.passes(), strict=False
        ):
            pass
        print_times(name, found, arguments.cards)
    lab = VirtualLab(tasks(arguments.tasks, random_, 0.0), machine, Rules(cores=16, most_per_card=4))
    next(lab.passes())
    found = []
    full = PolicyState(
        now=1.0, pending=list(lab.pending.values()), live=list(lab.live.values()), cards=machine,
        rules=Rules(cores=16, most_per_card=1),
    )  # fmt: skip
    for _ in range(arguments.passes):
        timed_policy(found, decide)(full)
    print_times("nothing fits, from scratch", found, arguments.cards)
    measure_daemon(tasks(arguments.tasks, random_, 0.0), cards(8), arguments.passes)


if __name__ == "__main__":
    main()
