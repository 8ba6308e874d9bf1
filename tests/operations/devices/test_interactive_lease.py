"""The commands are real ones, on simulated cards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from roost.base.errors import NotFound, Refused
from roost.devices import demand, inventory, lease_files
from roost.devices.card import Card
from roost.devices.lease import CardsBusy
from roost.devices.resource_request import ResourceRequest
from roost.lab.queue import wakeup
from roost.lab.queue.task import PENDING, RUNNING, SUCCEEDED
from roost.operations import lab
from roost.operations.devices import interactive_lease
from roost.operations.devices.interactive_lease import LeasedCards, LeaseWait
from roost.supervisor.processes.process_tree import descendants
from tests.devices.leasing import at_once
from tests.devices.leasing import take as other
from tests.lab.labs import Lab
from tests.messages import Messages
from tests.waiting import wait_for

PROGRAM = [sys.executable, "-m", "roost.cli", "lease"]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Lab]:
    own = Lab(tmp_path, "sim:2x24GB")
    with own.here():
        yield own
    own.close()


def taken(cards: int = 1, mb: int | None = None, *, wait: bool = False) -> LeasedCards:
    request = ResourceRequest(cards=cards, memory_mb=mb)
    (found,) = interactive_lease.lease_cards(request, wait=wait)
    assert isinstance(found, LeasedCards)
    return found


def ids(found: LeasedCards) -> list[str]:
    return [one.id for one in found.cards]


def are_held() -> list[str]:
    return [one.id for one in inventory.read_cards() if lease_files.live_leases(one.id)]


def test_a_command_sees_its_cards_and_its_exit_code_is_given(here: Lab) -> None:
    found = taken(cards=2)
    assert are_held() == ["SIM-0", "SIM-1"]
    script = 'echo $CUDA_VISIBLE_DEVICES $ROOST_LEASE > seen; exit "$1"'
    assert interactive_lease.run_command(["/bin/sh", "-c", script, "sh", "7"], found) == 7
    assert (here.folder / "seen").read_text() == f"SIM-0,SIM-1 {found.leases.token}\n"
    assert are_held() == []


def test_the_exit_code_after_a_signal_is_that_of_a_shell(here: Lab) -> None:
    assert interactive_lease.run_command(["/bin/sh", "-c", "kill -9 $$"], taken()) == 128 + signal.SIGKILL


def test_a_program_that_is_not_there_frees_the_cards(here: Lab, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        interactive_lease.run_command(["no-such"], taken())
    assert "'no-such'" in str(refused.value)
    messages.check(refused.value)
    assert are_held() == []
    with pytest.raises(PermissionError):
        interactive_lease.run_command([str(here.folder)], taken())
    assert are_held() == []


def test_the_handlers_are_those_of_before(here: Lab) -> None:
    before = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    interactive_lease.run_command(["true"], taken())
    assert before == [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


def test_a_free_card_is_leased_and_leased_ones_are_reported(here: Lab, messages: Messages) -> None:
    mine = other(inventory.read_cards()[0])
    found = taken()
    assert ids(found) == ["SIM-1"]
    with pytest.raises(CardsBusy) as refused:
        taken()
    assert all(
        fact in str(refused.value) for fact in ("1 GPU ", " 2 ", "GPU 0: ", "/runs/a", "GPU 1: ", "--wait")
    )
    messages.check(refused.value.fix)
    found.leases.close()
    with pytest.raises(CardsBusy) as refused:
        taken(cards=2)
    assert all(fact in str(refused.value) for fact in ("2 GPUs ", "1 of 2 ", "GPU 0: "))
    assert "GPU 1: " not in str(refused.value)
    mine.close()
    both = taken(cards=2)
    with pytest.raises(CardsBusy) as refused:
        taken()
    assert "GPU 0, GPU 1: " in str(refused.value)
    both.leases.close()


def test_parts_of_a_card_are_shared_but_not_what_stays_free(here: Lab, messages: Messages) -> None:
    first, second = taken(cards=2, mb=20_000), taken(mb=4_000)
    assert len(lease_files.live_leases(ids(second)[0])) == 2
    with pytest.raises(CardsBusy) as refused:
        taken(mb=5_000)
    assert all(fact in str(refused.value) for fact in ("4.9 GB ", "19.5 GB", "3.9 GB"))
    first.leases.close()
    second.leases.close()
    with pytest.raises(Refused) as refused:
        taken(mb=24_500)
    assert all(fact in str(refused.value) for fact in ("23.9 GB ", " 2 "))
    messages.check(refused.value)


@pytest.mark.parametrize("count", [3, 100])
def test_more_than_there_is_is_refused_at_once(here: Lab, count: int, messages: Messages) -> None:
    with pytest.raises(Refused) as refused:
        taken(cards=count, wait=True)
    assert all(fact in str(refused.value) for fact in (f"{count} GPUs ", " 2 ", "roost devices"))
    messages.check(refused.value)


def test_a_machine_without_cards_has_none_to_lease(
    here: Lab, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("ROOST_DEVICES", "cpu")
    with pytest.raises(Refused) as refused:
        taken(wait=True)
    assert all(fact in str(refused.value) for fact in ("1 GPU ", " 0 "))
    messages.check(refused.value)


def test_those_that_are_visible_are_taken(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    found = taken()
    assert ids(found) == ["SIM-1"]
    found.leases.close()


def test_a_card_in_use_without_a_lease_is_skipped(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = [{"card": "SIM-1", "pid": 4711, "user": "ann", "memory": "10GB"}]
    (tmp_path / "scenario.json").write_text(json.dumps({"cards": "1x24GB,1x40GB", "processes": processes}))
    monkeypatch.setenv("ROOST_DEVICES", f"sim:{tmp_path / 'scenario.json'}")
    found = taken()
    assert ids(found) == ["SIM-0"]
    with pytest.raises(CardsBusy, match=r"GPU 1: .*4711.* ann, 10\.0 GB"):
        taken()
    part = taken(mb=25_000)
    assert ids(part) == ["SIM-1"]
    found.leases.close()
    part.leases.close()
    with pytest.raises(CardsBusy, match=r"GPU 1: .*4711"):
        taken(mb=35_000)


def test_who_waits_says_so_once_and_gets_it_when_it_is_free(
    here: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interactive_lease, "_POLL_SECONDS", 0.01)
    others = other(*inventory.read_cards())
    found = []
    for event in interactive_lease.lease_cards(ResourceRequest(cards=1), wait=True):
        found.append(event)
        others.close()
    first, last = found
    assert isinstance(first, LeaseWait) and " of 2 " in first.why and "GPU 0, GPU 1: " in first.why
    assert isinstance(last, LeasedCards) and ids(last) == ["SIM-0"]
    last.leases.close()


def test_ten_at_once_never_have_the_same_card(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder of a card makes its file, which must not exist before."""
    monkeypatch.setattr(interactive_lease, "_POLL_SECONDS", 0.01)

    def turn(number: int) -> None:
        *_, found = interactive_lease.lease_cards(ResourceRequest(cards=1), wait=True)
        assert isinstance(found, LeasedCards)
        mark = tmp_path / ids(found)[0]
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        mark.unlink()
        found.leases.close()

    assert at_once(10, turn) == [0] * 10


def test_the_lab_keeps_off_and_is_woken_when_the_command_has_ended(here: Lab) -> None:
    found = taken(cards=2)
    id = here.submit("exec sleep 600", need=ResourceRequest(cards=1))
    wait_for(lambda: here.one(id).reason)
    assert here.one(id).state == PENDING
    lab.stop()
    with closing(wakeup.listen(here.state)) as bell:
        wakeup.drain(bell)
        assert interactive_lease.run_command(["true"], found) == 0
        assert wakeup.drain(bell)
    lab.start()
    here.wait_for(id, RUNNING)


def test_killed_it_leaves_the_cards_to_its_command(here: Lab) -> None:
    command = ["/bin/sh", "-c", "echo $$ > pid; exec sleep 600"]
    with subprocess.Popen([*PROGRAM, "--", *command], stderr=subprocess.DEVNULL) as process:
        pid = wait_for(lambda: _pid(here))
        process.kill()
    assert are_held() == ["SIM-0"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not are_held())


def test_a_command_that_closes_what_it_does_not_know_keeps_the_cards(here: Lab) -> None:
    close = "import os; os.closerange(3, 64); open('pid', 'w').write(f'{os.getpid()}\\n'); input()"
    with subprocess.Popen(
        [*PROGRAM, "--", sys.executable, "-c", close], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        wait_for(lambda: _pid(here))
        assert are_held() == ["SIM-0"]
        process.communicate(b"\n")
    assert process.returncode == 0 and are_held() == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_who_is_asked_to_end_asks_the_command(here: Lab, signum: int) -> None:
    command = ["/bin/sh", "-c", f"trap 'exit 9' {signum:d}; echo $$ > pid; while :; do sleep 0.01; done"]
    with subprocess.Popen([*PROGRAM, "--", *command], stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: _pid(here))
        process.send_signal(signum)
        assert process.wait(100) == 9
    assert are_held() == []


def _pid(here: Lab) -> int:
    path = here.folder / "pid"
    text = path.read_text() if path.exists() else ""
    return int(text) if text.endswith("\n") else 0


def test_a_waiting_lease_is_queued_among_the_waiting_tasks(here: Lab) -> None:
    """The lease waits from before the second task on, and after the first."""
    first = taken(cards=2)
    before = here.queue("echo before >> order", need=ResourceRequest(cards=2))
    here.start()
    wait_for(lambda: len(demand.read_demands()) == 1)
    events = interactive_lease.lease_cards(ResourceRequest(cards=2), wait=True)
    assert isinstance(next(events), LeaseWait)
    assert sorted(len(post.record.wants) for post in demand.read_demands()) == [1, 1]
    after = here.submit("echo after >> order", need=ResourceRequest(cards=2))
    wait_for(lambda: here.one(after).reason != "")
    first.leases.close()
    found = next(event for event in events if isinstance(event, LeasedCards))
    assert here.wait_for(before.id).state == SUCCEEDED
    wait_for(lambda: here.one(after).state == PENDING)  # the daemon may have tried it in the same instant
    assert list(events) == []
    found.leases.close()
    assert here.wait_for(after).state == SUCCEEDED
    assert here.lines("order") == [["before"], ["after"]]


def test_a_lease_waits_for_all_to_see_until_it_has_its_cards(
    here: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = taken(cards=2)
    events = interactive_lease.lease_cards(ResourceRequest(cards=2), wait=True)
    assert isinstance(next(events), LeaseWait)
    first.leases.close()
    lease_free_cards, seen = interactive_lease._lease_free_cards, []

    def lease_and_note(request: ResourceRequest, cards: Sequence[Card]) -> LeasedCards:
        seen.append(len(demand.read_demands()))
        return lease_free_cards(request, cards)

    monkeypatch.setattr(interactive_lease, "_lease_free_cards", lease_and_note)
    found = next(events)
    assert isinstance(found, LeasedCards) and seen == [1]
    assert list(events) == [] and demand.read_demands() == []
    found.leases.close()


def test_what_is_kept_for_others_is_not_taken(here: Lab, messages: Messages) -> None:
    first = taken(cards=2)
    post = demand.DemandFile()
    post.publish(demand.DemandRecord(wants=(demand.CardDemand(cards=2, since=0.0),)))
    events = interactive_lease.lease_cards(ResourceRequest(cards=1), wait=True)
    assert isinstance(next(events), LeaseWait)
    first.leases.close()
    waits = next(events)
    assert isinstance(waits, LeaseWait) and "1 GPU " in waits.why
    messages.check(waits.why)
    post.withdraw()
    assert isinstance(next(events), LeasedCards)


def test_what_is_free_is_taken_at_once_also_by_who_would_wait(here: Lab) -> None:
    first, post = taken(), demand.DemandFile()
    post.publish(demand.DemandRecord(wants=(demand.CardDemand(cards=2, since=0.0),)))
    (found,) = interactive_lease.lease_cards(ResourceRequest(cards=1), wait=True)
    assert isinstance(found, LeasedCards), "a card that is kept for another one, as without --wait"
    for one in (first, found):
        one.leases.close()
    post.withdraw()


@pytest.mark.parametrize(
    ("script", "grace", "code"),
    [
        ("trap 'exit 3' TERM; echo > ready; while :; do sleep 0.01; done", 60.0, 3),
        ("trap '' TERM; sleep 600 & echo > ready; wait; wait", 0.05, -signal.SIGKILL),
        ("sh -c 'echo > ready; exec sleep 600'; exit 4", 60.0, 4),
        ("(trap '' TERM; echo > ready; exec sleep 600) & wait; exit 5", 0.5, 5),
    ],
    ids=[
        "ends as asked",
        "must be killed",
        "what it has started is asked, too",
        "what it has left behind is killed",
    ],
)
def test_when_its_time_is_over_it_ends(
    here: Lab, script: str, grace: float, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interactive_lease, "_GRACE_SECONDS", grace)
    with subprocess.Popen(["/bin/sh", "-c", f"trap : TERM; {script}"]) as child:
        wait_for((here.folder / "ready").exists)
        below = descendants(child.pid)
        assert interactive_lease._wait_with_limit(child, 0.01, lambda: None) == code
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))


def test_who_is_quicker_than_its_limit_is_left_alone(here: Lab) -> None:
    said: list[str] = []

    def run(command: list[str], seconds: float) -> int:
        return interactive_lease.run_command(
            command, taken(), time_limit=seconds, at_limit=lambda: said.append("over")
        )

    assert run(["/bin/sh", "-c", "exit 5"], 60.0) == 5 and not said
    assert run(["sleep", "600"], 0.01) == 128 + signal.SIGTERM and said == ["over"]
    assert are_held() == []
