"""Runs in no queue that were killed with all who watched over them: who is told, once, and of what."""

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


def told(web: Web) -> list[tuple[str, str]]:
    return [(task["state"], task["why"]) for asked in web.asked for task in asked.body["tasks"]]


def test_a_run_that_was_killed_with_its_guard_is_told_once(
    run: Path, web: Web, env: dict[str, str], messages: Messages
) -> None:
    leave(run, env, **GONE)
    set_up(web)
    for _ in range(2):
        unsent_run_notices.main()
    ((state, why),) = told(web)
    assert state == "crashed"
    messages.check(why)
    assert run_notice_list.unsent_entries(env) == []


@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_so_is_one_whose_notice_was_killed(run: Path, web: Web, env: dict[str, str], end: str) -> None:
    leave(run, env, state=end, error="boom" if end == "failed" else None, ended=START + 60.0)
    set_up(web)
    unsent_run_notices.main()
    assert told(web) == [(end, "boom" if end == "failed" else "")]
    assert web.asked[0].body["tasks"][0]["seconds"] == 60.0


def test_of_its_restarts_the_last_is_told(run: Path, web: Web, env: dict[str, str]) -> None:
    leave(run, env, state="crashed", error="first")
    add(run, 2, restart_of=1, state="crashed", error="second")
    set_up(web)
    unsent_run_notices.main()
    assert told(web) == [("crashed", "second")]


@pytest.mark.parametrize("how", ["continued", "removed"])
def test_nothing_is_told_of_what_a_person_knows(run: Path, web: Web, env: dict[str, str], how: str) -> None:
    path = leave(run, env, **GONE)
    set_up(web)
    if how == "continued":
        add(run, 2, state="succeeded")
    else:
        (run / "sessions").rename(run / "moved")
    unsent_run_notices.main()
    assert not web.asked and not Path(path).exists()


def test_one_that_may_run_elsewhere_stays(run: Path, web: Web, env: dict[str, str]) -> None:
    path = leave(run, env, **{**GONE, "host": "another", "boot_id": "another"})
    set_up(web)
    unsent_run_notices.main()
    assert not web.asked and Path(path).exists()
    assert run_notice_list.unsent_entries(env) == [], "nobody is sent again at once"


def test_where_nobody_is_to_be_told_the_list_is_cleared(run: Path, env: dict[str, str]) -> None:
    path = leave(run, env, **GONE)
    unsent_run_notices.main()
    assert not Path(path).exists()


def test_what_ends_while_the_settings_are_wrong_is_told_once_they_are_right(
    run: Path, web: Web, env: dict[str, str]
) -> None:
    path = leave(run, env, **GONE)
    set_up(web, "nonsense: 1")
    unsent_run_notices.main()
    assert not web.asked and run_notice_list.unsent_entries(env) == []
    set_up(web)
    os.utime(path, (0, 0))
    unsent_run_notices.main()
    assert len(told(web)) == 1


def test_one_whose_settings_cannot_be_read_keeps_nobody_from_the_others(
    run: Path, web: Web, env: dict[str, str]
) -> None:
    paths = [leave(run.with_name(f"run{number}"), env, **GONE) for number in range(3)]
    set_up(web)
    for path in paths[::2]:  # whichever is looked at first
        package, session, _ = json.loads(Path(path).read_text())
        Path(path).write_text(json.dumps([package, session, f"{notice_events.settings_path()}/notices.yaml"]))
        os.utime(path, (0, 0))
    unsent_run_notices.main()
    assert len(told(web)) == 1
    assert [Path(path).exists() for path in paths] == [True, False, True]
    assert run_notice_list.unsent_entries(env) == [], "nobody is sent again at once"


def test_who_could_not_be_told_is_noted_in_the_lab(run: Path, web: Web, env: dict[str, str]) -> None:
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


def test_who_is_told_says_whoever_began_it(
    run: Path, web: Web, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(run, env, **GONE)
    set_up(web)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    unsent_run_notices.main()
    assert len(told(web)) == 1
