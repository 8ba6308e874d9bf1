"""What one decision of the scheduler costs.

    python bench/policy.py [--tasks 10000] [--cards 1000] [--passes 400]

Tasks of 20 users, 3 priorities, 1 to 8 cards, whole ones and seven sizes of memory, most with a limit, one in
ten opportunistic, some of the CPU, some of sweeps, some that wait for others. The cards are of two models.
Time is virtual; after each end of a task a decision is made, as the lab does.

1. All are queued at once: from the empty machine on. Each decision goes on from the one before, as those of
   `roost simulate` do.
2. They come one after the other (Poisson), more than the cards can do; the same.
3. All are queued at once, and each decision starts anew, as those of the daemon do.
4. All are queued on a full machine where nothing fits: the decision that only explains; it starts anew.

With --whole, simulations to the end of the last task, as `roost simulate` makes them: seconds of the CPU and
of the clock, and a digest of all decisions, the same each time.

    python bench/policy.py --whole [--tasks 10000] [--cards 1000]
"""

from __future__ import annotations

import argparse
import hashlib
import random
import statistics
import time
from collections.abc import Callable

from roost.devices.card import Card
from roost.lab.policy.decide import Policy, decide
from roost.lab.policy.state import Decision, Rules, State
from roost.lab.task import PENDING, Need, Task
from roost.operations.virtual import Job, Lab

SIZES = (2000, 4000, 6000, 8000, 12000, 16000, 20000, None)
LIMITS = (None, 1800.0, 3600.0, 4 * 3600.0, 12 * 3600.0, None, 24 * 3600.0, None)


def cards(count: int) -> list[Card]:
    models = (("H100", 80 * 1024), ("RTX 4090", 24 * 1024))
    return [Card(n, f"GPU-{n}", *models[n % 2], models[n % 2][1]) for n in range(count)]


def tasks(count: int, random_: random.Random, every: float) -> list[Job]:
    made: list[Job] = []
    needs: dict[Need, Need] = {}  # equal ones are one object, as in the queue
    now = 0.0
    for number in range(count):
        now += random_.expovariate(1 / every) if every else 0.0
        limit = random_.choice(LIMITS)
        need = Need(
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
            after=(made[-1].task.id,) if made and number % 25 == 0 else (),
        )
        made.append(Job(task, random_.uniform(0.2, 1) * (limit or 6 * 3600.0)))
    return made


def measured(name: str, found: list[tuple[float, float, int]], cards: int) -> None:
    shown = []
    for times in (sorted(cpu * 1e3 for cpu, *_ in found), sorted(wall * 1e3 for _, wall, _ in found)):
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        shown.append(f"{statistics.median(times):.1f} | {p99:.1f} | {times[-1]:.1f}")
    waiting = f"{max(pending for *_, pending in found):,} × {cards:,}"
    print(f"| {name} | {waiting} | {len(found)} | {' | '.join(shown)} |", flush=True)


def timed(
    found: list[tuple[float, float, int]], decide: Callable[[State], Decision]
) -> Callable[[State], Decision]:
    """A policy; notes how long each decision took, on the CPU and on the clock, and how many tasks were
    pending."""

    def timed_decide(state: State) -> Decision:
        began, cpu = time.perf_counter(), time.thread_time()
        decision = decide(state)
        found.append((time.thread_time() - cpu, time.perf_counter() - began, len(state.pending)))
        return decision

    return timed_decide


def whole(name: str, jobs: list[Job], machine: list[Card]) -> None:
    """Simulates them to the end."""
    digest, passes, began, cpu = hashlib.sha256(), 0, time.perf_counter(), time.process_time()
    for _, decision in Lab(jobs, machine, Rules(cores=16, most_per_card=4)).passes():
        digest.update(repr((decision.placements, decision.evictions, decision.head)).encode())
        passes += 1
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    shown = f"{len(jobs):,} | {passes:,} | {cpu:.1f} | {seconds:.1f} | {digest.hexdigest()[:12]}"
    print(f"| {name} | {shown} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--cards", type=int, default=1_000)
    parser.add_argument("--passes", type=int, default=400)
    parser.add_argument("--whole", action="store_true", help="Whole simulations alone.")
    asked = parser.parse_args()
    machine, random_ = cards(asked.cards), random.Random(0)
    if asked.whole:
        print("| tasks | number | passes | CPU, s | wall, s | digest |\n|---|---|---|---|---|---|")
        for name, every in (("all queued at once", 0.0), ("one after the other, room for all", 15.0)):
            whole(name, tasks(asked.tasks, random_, every), machine)
        return
    print("| tasks | most pending × cards | passes | CPU, ms: p50 | p99 | max | wall, ms: p50 | p99 | max |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, every, policy in (
        ("all queued at once", 0.0, Policy().decide),
        ("one after the other", 2.0, Policy().decide),
        ("all queued at once, each anew", 0.0, decide),
    ):
        found: list[tuple[float, float, int]] = []
        rules = Rules(cores=16, most_per_card=4)
        lab = Lab(tasks(asked.tasks, random_, every), machine, rules, decide=timed(found, policy))
        for _ in zip(range(asked.passes if not every else 10 * asked.passes), lab.passes(), strict=False):
            pass
        measured(name, found, asked.cards)
    lab = Lab(tasks(asked.tasks, random_, 0.0), machine, Rules(cores=16, most_per_card=4))
    next(lab.passes())
    found = []
    full = State(
        now=1.0, pending=list(lab.pending.values()), live=list(lab.live.values()), cards=machine,
        rules=Rules(cores=16, most_per_card=1),
    )  # fmt: skip
    for _ in range(asked.passes):
        timed(found, decide)(full)
    measured("nothing fits, each anew", found, asked.cards)


if __name__ == "__main__":
    main()
