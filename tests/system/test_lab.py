"""The lab as a whole: a real daemon, real supervisors, simulated cards, and kills."""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import exact
import pytest

from roost.base import durable
from roost.base.errors import Refused
from roost.devices import lease_files
from roost.devices.resource_request import ResourceRequest
from roost.lab.background import daemon_presence
from roost.lab.policy.reason_codes import DISPLAYED_CODES, reason_code
from roost.lab.queue.task import ENDED, FAILED, KILL, PENDING, STARTING, STOP, STOPPED, SUCCEEDED, Task
from roost.package import live_progress
from tests.lab.labs import Lab, record_of
from tests.processes import living_in, marked
from tests.waiting import wait_for

CARD_MB = 24_000


class Span(NamedTuple):
    """A time in which a task had some of a card."""

    begin: float
    end: float
    card: str
    mb: int


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.close()


def script(name: str, seconds: float, code: int = 0, *, until: str | None = None) -> str:
    """Leaves its own marks: a line as it begins and one as it ends, with the time and the cards it sees.

    Args:
        name: Of the task, in its marks.
        seconds: It takes.
        code: It exits with.
        until: A file that it waits for first, where it runs.
    """
    begin = f'echo "{name} begin $(date +%s.%N) $CUDA_VISIBLE_DEVICES" >> marks'
    end = f'echo "{name} end $(date +%s.%N) {code}" >> marks'
    wait = "" if until is None else f"until [ -e {until} ]; do sleep 0.05; done; "
    return f"{begin}; {wait}sleep {seconds:.2f}; {end}; exit {code}"


def most_at_once(spans: Iterable[Span]) -> dict[str, int]:
    """The most megabytes that were used of each card at any instant."""
    changes = sorted(
        (at, mb, span.card) for span in spans for at, mb in ((span.begin, span.mb), (span.end, -span.mb))
    )  # of the same instant what is given back comes first
    used: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for _, mb, card in changes:
        used[card] += mb
        most[card] = max(most[card], used[card])
    return dict(most)


def own_spans(lab: Lab, needs: dict[str, ResourceRequest]) -> list[Span]:
    """What the scripts themselves say."""
    begun: dict[str, tuple[float, list[str]]] = {}
    found = []
    for name, kind, at, *rest in lab.lines("marks"):
        if kind == "begin":
            begun[name] = float(at), rest[0].split(",") if rest else []
        else:
            since, cards = begun[name]
            found += [Span(since, float(at), card, needs[name].memory_mb or CARD_MB) for card in cards]
    return found


def queue_spans(lab: Lab) -> list[Span]:
    """What the queue says: from the event that gave a task its cards to the one that took them."""
    found = []
    with lab.store() as store:
        for task in store.tasks():
            mb = task.need.memory_mb or CARD_MB
            begun: tuple[float, list[str]] = 0.0, []
            for event in store.events(task=task.id):
                if event.kind == STARTING:
                    cards = event.text.partition(";")[0].split(", ")
                    begun = event.at, [card for card in cards if card != "no card"]
                elif event.kind in (PENDING, *ENDED):
                    found += [Span(begun[0], event.at, card, mb) for card in begun[1]]
                    begun = 0.0, []
    return found


def test_thirty_tasks_of_all_sizes_share_four_cards(lab: Lab) -> None:
    chance = random.Random(8)
    needs: dict[str, ResourceRequest] = {}
    for number in range(30):
        mb = chance.choice([None, 4_000, 9_000, 15_000])
        needs[f"t{number}"] = need = ResourceRequest(cards=chance.choice([0, 1, 1, 1, 2, 4]), memory_mb=mb)
        lab.queue(script(f"t{number}", chance.uniform(0.05, 0.2), until="go"), need=need)
    lab.start()
    waits: set[str] = set()

    def note(tasks: Sequence[Task]) -> bool:
        """Whether some tasks wait, each with a reason."""
        reasons = [task.reason for task in tasks if task.state == PENDING]
        waits.update(filter(None, reasons))  # one that is being started has none
        return bool(reasons) and all(reasons)

    wait_for(lambda: note(lab.tasks()))  # as nothing ends before it may, and the cards are full
    (lab.folder / "go").touch()
    assert {task.state for task in lab.wait_for_all(note)} == {SUCCEEDED}
    assert all(reason_code(reason) in DISPLAYED_CODES and reason.partition(":")[2] for reason in waits), waits
    for spans in (own_spans(lab, needs), queue_spans(lab)):
        most = most_at_once(spans)
        assert len(most) == 4 and max(most.values()) <= CARD_MB
    assert all(task.attempt == 1 for task in lab.tasks())


class Chaos:
    """Kills a daemon again and again while tasks are submitted, start, run, end and are stopped.

    Args:
        lab: Whose.
        seed: Of all that is random.
    """

    def __init__(self, lab: Lab, seed: int) -> None:
        self._lab, self._chance = lab, random.Random(seed)
        self.codes: dict[str, int] = {}
        self.asked: set[str] = set()
        self._is_kept = False
        """Whether the keeper of the last daemon was left alive."""
        self.ready_seconds: list[float] = []
        """From each kill until there was a daemon again that a command had started."""
        self.kept_seconds: list[float] = []
        """From each kill until the watchdog had started a daemon again, with its pause."""
        self.late_seconds: list[float] = []
        """By how much the end of each task in the queue is later than its own last mark."""

    def run(self, kills: int) -> None:
        self._lab.start()
        for _ in range(kills):
            for _ in range(self._chance.choice([1, 1, 2])):
                self._submit()
            if self._chance.random() < 0.3:
                self._stop()
            time.sleep(self._chance.uniform(0, 0.15))
            self._kill()

    def _kill(self) -> None:
        """The next daemon comes by a start, by the keeper of the one before, or by both at once. Not by the
        same keeper again and again: he pauses for longer and longer."""
        by_start, by_keeper = self._chance.choice([(True, False)] * 8 + [(False, True), (True, True)])
        by_start, by_keeper = by_start or self._is_kept, by_keeper and not self._is_kept
        self._is_kept = by_keeper
        if by_keeper:
            self._lab.kill_daemon_alone()
        else:
            self._lab.kill_daemon()
        began = time.monotonic()
        if by_start:
            self._lab.start()
        wait_for(lambda: daemon_presence.find_daemon(self._lab.state))
        (self.ready_seconds if by_start else self.kept_seconds).append(time.monotonic() - began)

    def _submit(self) -> None:
        code, need = (
            self._chance.choice([0, 0, 3, 9]),
            ResourceRequest(cards=self._chance.choice([0, 1, 1, 2])),
        )
        text = script(f"t{len(self.codes)}", self._chance.choice([0, 0.1, 0.4]), code)
        self.codes[self._lab.submit(text, need=need)] = code

    def _stop(self) -> None:
        id = self._chance.choice(list(self.codes))
        try:
            self._lab.ask(id, self._chance.choice([STOP, KILL]))
        except Refused:  # it has ended
            return
        self.asked.add(id)

    def check(self) -> None:
        """That of all that was submitted nothing was lost, doubled or recorded wrongly."""
        tasks = self._lab.wait_for_all(timeout_seconds=300)
        marks: dict[tuple[str, str], list[list[str]]] = {}
        for name, kind, at, *rest in self._lab.lines("marks"):
            marks.setdefault((name, kind), []).append([at, *rest])
        assert [task.id for task in tasks] == list(self.codes)
        for number, task in enumerate(tasks):
            begun, ended = marks.get((f"t{number}", "begin"), []), marks.get((f"t{number}", "end"), [])
            about = f"{task}\n{begun}\n{ended}"
            assert len(begun) <= 1 and len(ended) <= 1 and task.cards == (), about
            record = record_of(task) if task.session is not None else None
            if task.state == STOPPED:  # the order may come after its last mark, and before its end
                assert task.id in self.asked and (begun == [] if record is None else True), about
                assert record is None or record["state"] == STOPPED, about
                continue
            assert len(begun) == 1 and task.exit_code == self.codes[task.id] == int(ended[0][1]), about
            assert task.state == (FAILED if task.exit_code else SUCCEEDED), about
            assert record is not None and (record["state"], record["ended"]) == (task.state, task.ended), (
                about
            )
            late = record["ended"] - float(ended[0][0])
            written = (Path(task.package) / "sessions" / f"{task.session}.json").stat().st_mtime
            assert late > -0.01 and record["ended"] < written + 0.1, about
            self.late_seconds.append(late)
        assert statistics.median(self.late_seconds) < 1, "of each alone a busy machine might be the reason"
        wait_for(lambda: not living_in(self._lab.folder))
        self._check_what_is_left()

    def _check_what_is_left(self) -> None:
        wait_for(self._has_one_keeper)  # the others find a daemon when they have paused, and end
        with self._lab.here(), self._lab.store() as store:
            store.check()
            assert not any(lease.is_live for lease in lease_files.all_leases(lease_files.leases_folder()))
        assert len(list((self._lab.folder / "runs").iterdir())) == len(self.codes)
        assert [path for path in self._lab.folder.rglob("*") if durable.is_staging(path.name)] == []

    def _has_one_keeper(self) -> bool:
        return len({*marked(str(self._lab.state))} & {*marked("watchdog.py")}) == 1

    def figures(self) -> str:
        """For people."""
        return (
            f"{len(self.codes)} tasks; a daemon again after {max(self.ready_seconds):.2f} s at most, "
            f"{len(self.kept_seconds)} times automatically after {max(self.kept_seconds, default=0):.2f} s; "
            f"ends recorded {max(self.late_seconds):.2f} s late at most"
        )


def test_a_daemon_that_is_killed_again_and_again_loses_nothing(
    lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    chaos = Chaos(lab, seed=1)
    chaos.run(20)
    chaos.check()
    with capfd.disabled():  # the soak judges them: here the machine may be busy
        print(f"\n{chaos.figures()}", file=sys.stderr)
    assert max(most_at_once(queue_spans(lab)).values()) <= CARD_MB


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_two_hundred_kills_lose_nothing(lab: Lab) -> None:
    """``pytest -m soak -s tests/system/test_lab.py -k two_hundred``; ROOST_KILLS says how many others,
    ROOST_SEED which ones."""
    kills = int(os.environ.get("ROOST_KILLS", "200"))
    seed = int(os.environ.get("ROOST_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}")  # before, so that a failure can be met again
    chaos = Chaos(lab, seed=seed)
    chaos.run(kills)
    chaos.check()
    print(chaos.figures())
    assert max(chaos.ready_seconds) <= 2 and max(chaos.late_seconds) < 1


def test_two_users_never_meet_on_one_card(tmp_path: Path) -> None:
    needs: dict[str, ResourceRequest] = {}
    labs = [Lab(tmp_path / name, "sim:2x24GB", leases=tmp_path / "leases") for name in ("ada", "grace")]
    try:
        for number in range(6):
            for lab in labs:
                name = f"{lab.folder.name}{number}"
                needs[name] = need = ResourceRequest(
                    cards=1 + number % 2, memory_mb=15_000 if number % 3 else None
                )
                lab.queue(script(name, 0.1), need=need)
        for lab in labs:
            lab.start()
        for lab in labs:
            assert {task.state for task in lab.wait_for_all()} == {SUCCEEDED}
        most = most_at_once(span for lab in labs for span in own_spans(lab, needs))
        assert len(most) == 2 and max(most.values()) <= CARD_MB
        assert all(task.attempt == 1 for lab in labs for task in lab.tasks())
    finally:
        for lab in labs:
            lab.close()


def test_a_training_that_makes_room_goes_on_bit_for_bit(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab", "sim:1x24GB")
    try:
        overrides = ["net=mlp", "max_epochs=2", "pause=0.02"]
        undisturbed = exact.start(tmp_path / "alone", overrides)
        need = ResourceRequest(cards=1, opportunistic=True)
        task = lab.train(exact.PROJECT / "config.yaml", *overrides, need=need)
        wait_for(lambda: (look := live_progress.read(Path(task.package) / "progress")) and look.step > 2)
        other = lab.wait_for(lab.submit("exit 0", need=ResourceRequest(cards=1)))
        assert other.state == SUCCEEDED
        ended = lab.wait_for(task.id)
        assert (ended.state, ended.attempt, ended.session) == (SUCCEEDED, 2, 2)
        with lab.store() as store:
            assert "preempted" in " ".join(event.text for event in store.events(task=task.id))
        assert exact.wait(undisturbed) == 0
        assert exact.fingerprint(Path(task.package)) == exact.fingerprint(undisturbed.package)
    finally:
        lab.close()
