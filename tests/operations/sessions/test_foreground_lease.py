"""Runs at a terminal hold their cards. These are simulated: the run itself computes on the CPU."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.config.settings import parse_settings
from roost.devices import lease as leases
from roost.devices import lease_files, visible_cards
from roost.devices.card import Card
from roost.devices.lease import CardsBusy, LeaseHolder
from roost.operations.lifecycle.check import CheckRequest, check
from roost.operations.lifecycle.continue_ import ContinueRequest, continue_
from roost.operations.lifecycle.fork import ForkRequest, fork
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.models.analyze import AnalyzeRequest, analyze
from roost.operations.models.predict import PredictRequest, predict
from roost.operations.sessions import foreground_lease
from roost.operations.sessions.foreground_lease import SessionCards, cards_of_session, choose_one_card
from roost.operations.sessions.rank_layout import RankRequest
from roost.operations.sessions.session_request import StartedSession, start_session
from roost.package.package import PackageFolder
from roost.package.session_schema import SessionRequest
from tests.messages import Messages
from tests.operations.packages import VALUES, package, project
from tests.waiting import wait_for

CARDS = [Card(number, f"SIM-{number}", "simulated", 24576, 24576) for number in (0, 1)]


@pytest.fixture(autouse=True)
def two_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("ROOST_DEVICES", "sim:2x24GB")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def endless(folder: Path) -> Path:
    """A project whose training does not end by itself, however slow the test is; gives its config."""
    return project(folder, max_epochs="1000000")


def kill(started: StartedSession) -> None:
    assert started.process is not None
    started.process.send_signal(signal.SIGQUIT)
    started.process.wait()


def environment_of(started: StartedSession) -> list[bytes]:
    assert started.running is not None
    record = started.running.session().record
    assert record is not None
    return Path(f"/proc/{record['worker_pid']}/environ").read_bytes().split(b"\0")


def test_a_run_holds_the_first_card_that_it_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_COLD", "1")  # of a warm one /proc shows the environment of its template process
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    started = run(RunRequest(config=endless(tmp_path / "p")))
    (lease,) = lease_files.live_leases("SIM-1")
    assert (lease.record.mb, lease.record.package) == (None, str(started.package))
    assert lease_files.live_leases("SIM-0") == []
    wait_for(lambda: f"ROOST_LEASE={lease.token}".encode() in environment_of(started))  # once it is itself
    kill(started)
    assert lease_files.live_leases("SIM-1") == []
    again = continue_(ContinueRequest(package=started.package))
    assert len(lease_files.live_leases("SIM-1")) == 1
    kill(again)


def test_where_it_is_held_nothing_is_made(tmp_path: Path, messages: Messages) -> None:
    config = endless(tmp_path / "p")
    first = run(RunRequest(config=config, name="first"))
    other = leases.take(CARDS[1:], 1, LeaseHolder.this_process())
    name = lease_files.user_name(os.geteuid())
    with pytest.raises(CardsBusy) as refused:
        run(RunRequest(config=config, name="second"))
    assert all(fact in refused.value.detail for fact in ("GPU 0", name, str(first.package)))
    assert "roost submit" in str(refused.value.fix) and "-CPU" in str(refused.value.fix)
    messages.check(refused.value.fix)
    assert not (tmp_path / "p" / "runs" / "second").exists()
    kill(run(RunRequest(config=config, name="third", device="cpu")))
    kill(first)
    other.close()
    with_lease = leases.take(CARDS, 1, LeaseHolder.this_process())
    with pytest.raises(CardsBusy):
        continue_(ContinueRequest(package=tmp_path / "p" / "runs" / "first"))
    with_lease.close()


def test_a_fork_holds_its_card_too(tmp_path: Path) -> None:
    source = package(tmp_path / "runs")
    lease = leases.take(CARDS, None, LeaseHolder.this_process())
    with pytest.raises(CardsBusy):
        fork(ForkRequest(package=source.path, overrides=["max_epochs=9"], name="other"))
    assert not (tmp_path / "runs" / "other").exists()
    lease.close()


def test_one_that_was_taken_meanwhile(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="new")
    lock_fd = made.lock()
    needs = cards_of_session(SessionRequest(device="auto"))
    lease = leases.take(CARDS[:1], 1, LeaseHolder.this_process())
    with pytest.raises(CardsBusy):
        start_session(
            made, lock_fd, SessionRequest(device="auto"), parse_settings(VALUES), session_cards=needs
        )
    assert made.sessions() == []
    lease.close()
    os.close(lock_fd)


def test_where_the_first_card_is_held_a_run_takes_another_and_sees_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_COLD", "1")
    lease = leases.take(CARDS[:1], 1, LeaseHolder.this_process())
    started = run(RunRequest(config=endless(tmp_path / "p")))
    assert any("GPU 0" in note and "GPU 1" in note for note in started.notes)
    assert len(lease_files.live_leases("SIM-1")) == 1
    wait_for(lambda: b"CUDA_VISIBLE_DEVICES=SIM-1" in environment_of(started))
    kill(started)
    assert cards_of_session(SessionRequest(device="auto", ranks=2)).cards == CARDS, "two are not free"
    assert cards_of_session(SessionRequest(device="auto", cards=["SIM-0"])).cards == CARDS[:1], (
        "this one was asked for"
    )
    lease.close()


def test_what_a_session_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cards_of_session(SessionRequest(device="cpu")) == SessionCards()
    assert cards_of_session(SessionRequest(device="auto", cards=None, ranks=1)).cards == CARDS[:1]
    assert cards_of_session(SessionRequest(device="cuda", cards=None, ranks=2)).cards == CARDS
    assert cards_of_session(SessionRequest(device="cuda", cards=["SIM-1"], ranks=1)).cards == CARDS[1:]
    monkeypatch.setenv("ROOST_DEVICES", "cpu")
    monkeypatch.setattr(visible_cards, "torch_has_cuda", lambda: False)
    monkeypatch.setattr(
        visible_cards, "cards", lambda: pytest.fail("the driver is queried although torch has no GPU")
    )
    assert cards_of_session(SessionRequest(device="auto")) == SessionCards()


def test_a_driver_that_does_not_tell_costs_the_lease_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    """An unusable driver matters only when a GPU is requested: here the query fails."""
    scenario = tmp_path / "scenario.json"
    scenario.write_text('{"cards": "1x24GB", "failures": [{"card": "SIM-0", "trouble": "it is lost"}]}')
    monkeypatch.setenv("ROOST_DEVICES", f"sim:{scenario}")
    found = cards_of_session(SessionRequest(device="auto"))
    assert not found.cards
    (note,) = found.notes
    assert "GPU 0" in note and "it is lost" in note
    messages.check(note)
    with pytest.raises(Refused, match="it is lost"):
        cards_of_session(SessionRequest(device="cuda", cards=None))


def test_a_run_in_a_leased_shell_uses_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    outer = leases.take(CARDS, None, LeaseHolder.this_process())
    ((name, value),) = outer.environment().items()
    monkeypatch.setenv(name, value)
    foreground_lease.require_free(SessionCards(CARDS))
    assert cards_of_session(SessionRequest(device="auto")).cards == CARDS[:1]
    outer.close()


def test_what_needs_one_card_takes_one_that_is_free(messages: Messages) -> None:
    assert choose_one_card("cpu") == SessionCards() and choose_one_card("cpu").ids is None
    assert (
        choose_one_card("mps") == SessionCards() == cards_of_session(SessionRequest(device="xpu", cards=None))
    )
    assert choose_one_card("auto").ids == ["SIM-0"]
    first = leases.take(CARDS[:1], 1, LeaseHolder.this_process())
    assert choose_one_card("cuda").ids == ["SIM-1"]
    second = leases.take(CARDS[1:], None, LeaseHolder.this_process())
    with pytest.raises(CardsBusy, match=r"GPU \d ") as refused:
        choose_one_card("auto")
    assert "-CPU" in str(refused.value)
    messages.check(refused.value.fix)
    first.close()
    second.close()


def test_workers_that_read_a_package_lease_a_card(finished: PackageFolder, tmp_path: Path) -> None:
    script = tmp_path / "look.py"
    script.write_text("import time\ndef experience(self):\n    time.sleep(100)\n")
    looking = AnalyzeRequest(package=finished.path, script=str(script), project=finished.path)
    predicting = PredictRequest(package=finished.path, source="valid", project=finished.path)
    started = analyze(looking)
    (lease,) = lease_files.live_leases("SIM-0")
    assert (lease.record.mb, lease.record.package) == (None, str(finished.path))
    with check(CheckRequest(config=project(tmp_path / "p"))), pytest.raises(CardsBusy):
        assert len(lease_files.live_leases("SIM-1")) == 1
        before = sorted(path for path in finished.path.rglob("*"))
        with pytest.raises(CardsBusy):
            analyze(looking)
        assert sorted(path for path in finished.path.rglob("*")) == before
        with predict(predicting):
            pytest.fail("there was no card for it")
    with predict(predicting):
        assert len(lease_files.live_leases("SIM-1")) == 1
    kill(started)
    assert lease_files.live_leases("SIM-0") == lease_files.live_leases("SIM-1") == []


def test_sessions_that_declare_their_memory_share_a_card(
    tmp_path: Path, finished: PackageFolder, messages: Messages
) -> None:
    ranks = RankRequest(memory_mb=10_000)
    first = run(RunRequest(config=endless(tmp_path / "p"), ranks=ranks))
    second = run(RunRequest(config=endless(tmp_path / "q"), ranks=ranks))
    third = run(RunRequest(config=endless(tmp_path / "r"), ranks=ranks))
    held = [[lease.record.mb for lease in lease_files.live_leases(card.id)] for card in CARDS]
    assert held == [[10_000, 10_000], [10_000]], "a third one does not fit beside two"
    script = tmp_path / "look.py"
    script.write_text("import time\ndef experience(self):\n    time.sleep(100)\n")
    looking = AnalyzeRequest(
        package=finished.path, script=str(script), project=finished.path, memory_mb=10_000
    )
    fourth = analyze(looking)
    assert [lease.record.mb for lease in lease_files.live_leases("SIM-1")] == [10_000, 10_000]
    with pytest.raises(CardsBusy):
        analyze(looking)
    for started in (first, second, third, fourth):
        kill(started)
    again = continue_(ContinueRequest(package=first.package, ranks=RankRequest(memory_mb=500)))
    assert [lease.record.mb for lease in lease_files.live_leases("SIM-0")] == [500]
    assert again.running is not None and again.running.session().request.reserved_mb == 500
    kill(again)
    with pytest.raises(Refused) as refused:
        run(RunRequest(config=endless(tmp_path / "s"), ranks=RankRequest(memory_mb=30_000)))
    messages.check(str(refused.value))


def test_unleased_cards_come_first() -> None:
    full = replace(CARDS[1], free_mb=1)
    assert foreground_lease.prefer_free([CARDS[0], full], 1) == CARDS[:1]
    lease = foreground_lease.take_leases(SessionCards(CARDS[:1]), None)
    assert foreground_lease.prefer_free([CARDS[0], full], 1) == [full]
    assert foreground_lease.prefer_free([CARDS[0], full], 2) == [CARDS[0], full]
    lease.close()
    assert foreground_lease.take_leases(SessionCards(), None).fds == ()
