"""Each process of queued trainings, and each pair of them, is killed at random times: every task goes on, or
ends as what it is."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import exact
import pytest

from roost.base.system import process_identity
from roost.lab.background import daemon_presence
from roost.lab.background.daemon_presence import DaemonRecord
from roost.lab.queue.task import CRASHED, ENDED, FAILED, LIVE, SUCCEEDED, Task
from roost.lab.scheduling.attempt_outcome import MAX_LOST_IN_A_ROW
from roost.operations import lab as operations
from roost.package import live_progress
from roost.package.package import PackageFolder
from roost.supervisor.processes.process_tree import descendants
from tests.lab.labs import Lab
from tests.processes import is_gone, living_in
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the lab needs Linux")

OF_LAB = ("daemon", "watchdog", "template")
WATCHERS = ("guard", "supervisor")
OWN = ("worker", "loader worker")
"""Without these a training cannot go on: it has crashed or failed, and only `--retry` begins it again."""
ROLES = (*OF_LAB, *WATCHERS, *OWN)
TARGETS = [*((role,) for role in ROLES), *itertools.combinations(ROLES, 2)]
SETTINGS = ["net=mlp", "max_epochs=1", "pause=0.02", "data.num_workers=1"]
AT_ONCE = 2
_TARGET_SECONDS = 120.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab")
    yield lab
    lab.close()


class Killer:
    """Keeps some trainings in the queue, and kills their processes.

    Args:
        lab: Whose.
        seed: Of the times and the targets.
    """

    def __init__(self, lab: Lab, seed: int) -> None:
        self._lab, self._chance = lab, random.Random(seed)
        self.hits: defaultdict[str, list[str]] = defaultdict(list)
        """The roles that were killed, by task; those of the lab count for each task that had not ended."""
        self.killed: Counter[str] = Counter()

    def run(self, kills: int) -> None:
        """Kills so many targets, of which each comes as often as the others."""
        self._lab.start()
        targets = [TARGETS[number % len(TARGETS)] for number in range(kills)]
        self._chance.shuffle(targets)
        for target in targets:
            deadline = time.monotonic() + _TARGET_SECONDS
            while not self._kill(target):
                assert time.monotonic() < deadline, f"{target} were never all there"
                self._look()
            self._look()
        for task in self._lab.wait_for_all(self._look, timeout_seconds=300):
            self._judge(task)

    def _unended(self) -> list[Task]:
        """Returns all tasks that have not ended; among them are enough that need not wait for their begin."""
        found = [task for task in self._lab.tasks() if task.state not in ENDED]
        for _ in range(AT_ONCE - sum(task.begin is None or task.begin < time.time() for task in found)):
            found.append(self._lab.train(exact.PROJECT / "config.yaml", *SETTINGS))
        return found

    def _kill(self, target: tuple[str, ...]) -> bool:
        """Kills the processes of one task, and of the lab, at a random time; whether they were all there."""
        tasks = self._unended()
        time.sleep(self._chance.uniform(0, 0.5))
        live = [task for task in tasks if self._lab.one(task.id).state in LIVE]
        task = self._chance.choice(live or tasks)
        pids = {role: pid for role in target if (pid := self._find(role, task)) is not None}
        if len(pids) < len(target):
            return False
        for pid in pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # A killed process has its lock a moment longer, and would be taken for a living one.
        wait_for(lambda: all(map(is_gone, pids.values())))
        self.killed[" and ".join(target)] += 1
        for role in target:
            for one in tasks if role in OF_LAB else [task]:
                self.hits[one.id].append(role)
        return True

    def _find(self, role: str, task: Task) -> int | None:
        daemon = daemon_presence.find_daemon(self._lab.state)
        if role in OF_LAB:
            if daemon is None:
                return None
            if role == "daemon":
                return daemon.pid
            if role == "watchdog":
                return _watchdog_of(daemon)
            found = [pid for pid in descendants(daemon.pid) if _title(pid).startswith("roost: template")]
            return self._chance.choice(found) if found else None
        session = next(reversed(PackageFolder.open(task.package).sessions()), None)
        if session is None or session.record is None or session.state != "running":
            return None
        record = session.record
        if role == "loader worker":
            found = descendants(int(record["worker_pid"]))
            return found[0] if found else None
        return int(record[{"guard": "guard_pid", "supervisor": "pid", "worker": "worker_pid"}[role]])

    def _look(self, _: Sequence[Task] = ()) -> None:
        """Starts what no process of the lab starts again, as `roost tasks` does: a daemon that was killed
        together with its watchdog."""
        with self._lab.here():
            operations.restart_lost_daemon()

    def _judge(self, task: Task) -> None:
        hits, about = self.hits[task.id], f"{task}\nkilled: {self.hits[task.id]}"
        sessions = PackageFolder.open(task.package).sessions()
        last, lost = sessions[-1], sum(hits.count(role) for role in WATCHERS)
        if task.state == SUCCEEDED:
            assert (last.state, task.exit_code) == (SUCCEEDED, 0), about
            look = live_progress.read(Path(task.package) / "progress")
            assert look is not None and look.step == look.total_steps > 0, about
        else:
            its_own = task.state in (CRASHED, FAILED) and not set(OWN).isdisjoint(hits)
            worn_out = task.state == CRASHED and lost >= MAX_LOST_IN_A_ROW and "in a row" in task.reason
            assert its_own or worn_out, about
        assert living_in(Path(task.package)) == [], about
        assert task.attempt <= 1 + len(hits), about

    def figures(self) -> str:
        """For people."""
        states = Counter(task.state for task in self._lab.tasks())
        ends = ", ".join(f"{count} {state}" for state, count in states.items())
        again = sum(task.attempt > 1 for task in self._lab.tasks())
        kills = ", ".join(f"{count} x {target}" for target, count in self.killed.most_common())
        return f"{self.killed.total()} kills: {kills}; tasks: {ends}; {again} begun again"


def _watchdog_of(daemon: DaemonRecord) -> int | None:
    stat = process_identity.read_stat(daemon.pid)
    return stat.parent_pid if stat is not None and "watchdog.py" in _title(stat.parent_pid) else None


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


@pytest.mark.timeout(600)
def test_ten_kills(lab: Lab) -> None:
    killer = Killer(lab, seed=5)
    killer.run(10)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_kills(lab: Lab) -> None:
    """ROOST_SEED says which ones, ROOST_KILLS how many."""
    seed = int(os.environ.get("ROOST_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}")  # before, so that a failure can be met again
    killer = Killer(lab, seed)
    killer.run(int(os.environ.get("ROOST_KILLS", "200")))
    print(killer.figures())
