"""The notices of runs outside the queue, under the real guard."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from roost.supervisor.limits import SessionLimits
from roost.supervisor.notices import run_notice_list, run_notice_process
from roost.supervisor.session_spec import SessionSpec
from tests.lab.notices.receivers import Web
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

GOOD = "end('succeeded', 0, 'max_steps')"


def noticed(session: Session, code: str, **more: Any) -> SessionSpec:
    env = {"XDG_CONFIG_HOME": str(session.folder / "config"), "ROOST_STATE": str(session.folder / "state")}
    return session.spec(code, **env)._replace(is_noticed=True, **more)


def set_up(session: Session, web: Web, **said: object) -> None:
    file = session.folder / "config" / "roost" / "notices.yaml"
    file.parent.mkdir(parents=True)
    file.touch(mode=0o600)
    lines = [f"{name}: {value}" for name, value in {"least_minutes": 0, **said}.items()]
    file.write_text("\n".join([*lines, f"receivers: {{a: {{kind: webhook, url: '{web.url}'}}}}"]))


def sent_notices(web: Web) -> list[tuple[str, str, str]]:
    wait_for(lambda: bool(web.asked))
    return [(one["name"], one["state"], one["why"]) for asked in web.asked for one in asked.body["tasks"]]


@pytest.mark.parametrize(
    ("code", "state", "why"),
    [(GOOD, "succeeded", ""), ("end('failed', 7, 'x', 'no such layer')", "failed", "no such layer")],
)
def test_the_notice_of_the_end_follows_it(
    session: Session, web: Web, code: str, state: str, why: str
) -> None:
    set_up(session, web)
    assert session.end_spec(noticed(session, code))["state"] == state
    assert sent_notices(web) == [(session.folder.name, state, why)]
    (asked,) = web.asked
    assert f": roost show {session.folder}" in asked.body["text"]


def test_of_its_restarts_only_the_last_one_is_notified(session: Session, web: Web) -> None:
    set_up(session, web)
    (session.folder / "sessions" / "1.request.json").write_text("{}")
    (session.folder / "sessions" / "2.json").write_text('{"state": "crashed", "error": "again"}')
    session.end_spec(noticed(session, GOOD))
    assert sent_notices(web) == [(session.folder.name, "crashed", "again")]


def test_a_stall_is_notified_while_it_runs(session: Session, web: Web) -> None:
    set_up(session, web, least_minutes=1000)
    child = session.start_spec(
        noticed(
            session, "here('ready'); forever()", limits=SessionLimits(stall_seconds=0.2, grace_seconds=0.1)
        )
    )
    ((name, state, why),) = sent_notices(web)
    assert (name, state) == (session.folder.name, "stalled") and re.search(r"\b0\.2\d* s\b", why)
    assert child.poll() is None
    session.close()
    assert len(web.asked) == 1, "of its end nothing, it was short"


def test_no_process_is_started_without_receivers(
    session: Session, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    monkeypatch.setattr("os.posix_spawn", lambda *given, **_: sent.append(given))
    spec = noticed(session, GOOD)
    run_notice_process.send_end_notice(spec, None)
    assert not sent
    set_up(session, web)
    run_notice_process.send_end_notice(spec, None)
    assert len(sent) == 1
    run_notice_process.send_end_notice(
        spec._replace(session_file=str(session.folder / "gone" / "1.json")), None
    )
    assert len(sent) == 1, "its package was moved"


def entries(session: Session) -> list[Path]:
    return sorted((session.folder / "state").glob("noticed/*"))


def test_it_is_on_the_list_until_its_notice_was_sent(session: Session, web: Web) -> None:
    set_up(session, web)
    spec = noticed(session, "here('ready'); forever()")
    child = session.start_spec(spec)
    session.wait_until("ready")
    (entry,) = entries(session)
    assert entry.name == session.token and entry.stat().st_mode & 0o777 == 0o600
    assert not run_notice_list.unsent_entries(spec.env), "its guard holds it"
    web.answers_after = threading.Event()
    child.send_signal(signal.SIGQUIT)
    child.wait(100)
    wait_for(lambda: bool(web.asked))
    assert entries(session) and not run_notice_list.unsent_entries(spec.env), (
        "the sending process has the lock"
    )
    web.answers_after.set()
    wait_for(lambda: not entries(session))


def test_without_settings_nothing_is_listed(session: Session) -> None:
    session.start_spec(noticed(session, "here('ready'); forever()"))
    session.wait_until("ready")
    assert not entries(session)


def test_where_guard_and_supervisor_were_killed_it_is_left_on_the_list(session: Session, web: Web) -> None:
    set_up(session, web)
    spec = noticed(session, "here('ready'); forever()")
    child = session.start_spec(spec)
    session.wait_until("ready")
    os.kill(session.supervisor_pid, signal.SIGSTOP)
    child.kill()
    child.wait()
    assert not run_notice_list.unsent_entries(spec.env), "its supervisor continues, and has the lock"
    os.kill(session.supervisor_pid, signal.SIGKILL)
    wait_for(lambda: len(run_notice_list.unsent_entries(spec.env)) == 1)
    assert not web.asked


@pytest.mark.parametrize(("variable", "waits"), [("SLURM_JOB_ID", True), ("NO_JOB", False)])
def test_a_job_of_a_batch_system_ends_after_its_notice(
    session: Session, web: Web, variable: str, waits: bool
) -> None:
    set_up(session, web)
    web.answers_after = threading.Event()
    spec = noticed(session, GOOD)
    child = session.start_spec(spec._replace(env={**spec.env, variable: "7"}))
    wait_for(lambda: bool(web.asked))
    if waits:
        assert child.poll() is None
        web.answers_after.set()
    assert child.wait(100) == 0
    web.answers_after.set()


def test_an_order_ends_the_wait_of_a_job(session: Session, web: Web) -> None:
    set_up(session, web)
    web.answers_after = threading.Event()
    spec = noticed(session, GOOD)
    child = session.start_spec(spec._replace(env={**spec.env, "SLURM_JOB_ID": "7"}))
    wait_for(lambda: bool(web.asked))
    child.send_signal(signal.SIGTERM)
    assert child.wait(100) == 0, "else it waits for 30 s"
    web.answers_after.set()
