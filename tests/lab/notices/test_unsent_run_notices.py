"""Notices of runs without a task that were killed with their guard and supervisor."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from roost.lab.notices import notice_events, unsent_run_notices
from roost.lab.queue.queue_store import QueueStore
from roost.supervisor.notices import run_notice_list
from tests.lab.notices.lost import GONE, START, add, leave
from tests.lab.notices.receivers import Web
from tests.messages import Messages


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "ROOST_STATE": str(tmp_path / "state")}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    notice_events.settings_path().parent.mkdir(parents=True)
    return env


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def set_up(web: Web, more: str = "least_minutes: 0") -> None:
    notice_events.settings_path().touch(mode=0o600)
    notice_events.settings_path().write_text(f"{more}\nreceivers: {{a: {{kind: webhook, url: '{web.url}'}}}}")


def sent(web: Web) -> list[tuple[str, str]]:
    return [(task["state"], task["why"]) for asked in web.asked for task in asked.body["tasks"]]


def test_a_run_killed_with_its_guard_sends_one_notice(
    run: Path, web: Web, env: dict[str, str], messages: Messages
) -> None:
    leave(run, env, **GONE)
    set_up(web)
    for _ in range(2):
        unsent_run_notices.main()
    ((state, why),) = sent(web)
    assert state == "crashed"
    messages.check(why)
    assert run_notice_list.unsent_entries(env) == []


@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_a_run_whose_sending_process_was_killed_sends_one_notice(
    run: Path, web: Web, env: dict[str, str], end: str
) -> None:
    leave(run, env, state=end, error="boom" if end == "failed" else None, ended=START + 60.0)
    set_up(web)
    unsent_run_notices.main()
    assert sent(web) == [(end, "boom" if end == "failed" else "")]
    assert web.asked[0].body["tasks"][0]["seconds"] == 60.0


def test_the_last_restart_sends_the_notice(run: Path, web: Web, env: dict[str, str]) -> None:
    leave(run, env, state="crashed", error="first")
    add(run, 2, restart_of=1, state="crashed", error="second")
    set_up(web)
    unsent_run_notices.main()
    assert sent(web) == [("crashed", "second")]


@pytest.mark.parametrize("how", ["continued", "removed"])
def test_a_continued_or_removed_run_sends_no_notice(
    run: Path, web: Web, env: dict[str, str], how: str
) -> None:
    path = leave(run, env, **GONE)
    set_up(web)
    if how == "continued":
        add(run, 2, state="succeeded")
    else:
        (run / "sessions").rename(run / "moved")
    unsent_run_notices.main()
    assert not web.asked and not Path(path).exists()


def test_an_entry_that_may_run_elsewhere_stays(run: Path, web: Web, env: dict[str, str]) -> None:
    path = leave(run, env, **{**GONE, "host": "another", "boot_id": "another"})
    set_up(web)
    unsent_run_notices.main()
    assert not web.asked and Path(path).exists()
    assert run_notice_list.unsent_entries(env) == [], "no process is started again at once"


def test_without_receivers_the_list_is_cleared(run: Path, env: dict[str, str]) -> None:
    path = leave(run, env, **GONE)
    unsent_run_notices.main()
    assert not Path(path).exists()


def test_a_run_that_ends_while_the_settings_are_invalid_is_sent_later(
    run: Path, web: Web, env: dict[str, str]
) -> None:
    path = leave(run, env, **GONE)
    set_up(web, "nonsense: 1")
    unsent_run_notices.main()
    assert not web.asked and run_notice_list.unsent_entries(env) == []
    set_up(web)
    os.utime(path, (0, 0))
    unsent_run_notices.main()
    assert len(sent(web)) == 1


def test_an_entry_with_unreadable_settings_blocks_no_other(run: Path, web: Web, env: dict[str, str]) -> None:
    paths = [leave(run.with_name(f"run{number}"), env, **GONE) for number in range(3)]
    set_up(web)
    for path in paths[::2]:  # whichever is looked at first
        package, session, _ = json.loads(Path(path).read_text())
        Path(path).write_text(json.dumps([package, session, f"{notice_events.settings_path()}/notices.yaml"]))
        os.utime(path, (0, 0))
    unsent_run_notices.main()
    assert len(sent(web)) == 1
    assert [Path(path).exists() for path in paths] == [True, False, True]
    assert run_notice_list.unsent_entries(env) == [], "no process is started again at once"


def test_a_failed_delivery_is_recorded_in_the_lab(run: Path, web: Web, env: dict[str, str]) -> None:
    set_up(web)
    path = leave(run, env, **GONE)
    unsent_run_notices.send_entry(path, pauses=())
    assert len(web.asked) == 1 and not Path(path).exists()
    web.status = 404
    path = leave(run, env, **GONE)
    unsent_run_notices.send_entry(path, pauses=())
    with QueueStore.open() as store:
        (event,) = store.events(kind="not told")
    assert "404" in event.text and not Path(path).exists()


def test_the_settings_are_those_of_the_user_who_started_the_run(
    run: Path, web: Web, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(run, env, **GONE)
    set_up(web)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    unsent_run_notices.main()
    assert len(sent(web)) == 1
