from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.lab.notices.notice_dispatch import NoticeDispatcher
from roost.lab.notices.notice_events import settings_path
from roost.lab.queue.task import FAILED, RUNNING
from tests import processes
from tests.lab.labs import Lab
from tests.lab.notices.ends import end
from tests.lab.notices.lost import GONE, leave
from tests.lab.notices.receivers import Web
from tests.lab.queued import task
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    settings_path().parent.mkdir(parents=True)
    yield
    processes.kill_all_in(tmp_path)


def set_up(web: Web) -> None:
    settings_path().touch(mode=0o600)
    settings_path().write_text(f"receivers: {{a: {{kind: webhook, url: '{web.url}'}}}}")


def sent(web: Web) -> list[tuple[str, str]]:
    return [(one["id"], one["state"]) for asked in web.asked for one in asked.body["tasks"]]


def test_ends_before_and_after_a_kill_of_the_daemon_send_one_notice_each(lab: Lab, web: Web) -> None:
    """The first task ends while no daemon runs; the end of the second is in the queue, and no process was
    started for it."""
    lab.start()
    set_up(web)
    unseen = lab.submit("until [ -e go ]; do sleep 0.01; done; exit 7")
    lab.wait_for(unseen, RUNNING)
    lab.kill_daemon()
    (lab.folder / "go").touch()
    with lab.store() as store:
        one = task()
        store.submit([one])
        running = store.transition(store.start(one, [], None), RUNNING, session=1, started=1.0)
        store.transition(running, FAILED, reason="exit code 1", started=1.0, ended=2.0)
    lab.start()
    assert lab.wait_for(unseen).state == FAILED
    wait_for(lambda: len(web.asked) == 2)
    last = lab.submit("exit 0")
    wait_for(lambda: len(web.asked) == 3)
    assert sorted(sent(web)[:2]) == sorted([(unseen, "failed"), (one.id, "failed")])
    assert sent(web)[2] == (last, "succeeded")
    with lab.store() as store:
        everything = repr(store.events()) + lab.log()
    packages = "".join(file.read_text(errors="replace") for file in lab.folder.glob("runs/*/**/*.json"))
    assert "s3cret" not in everything + packages


def test_no_process_starts_without_settings_or_events(lab: Lab, web: Web) -> None:
    with lab.store() as store:
        errand = NoticeDispatcher(store)
        errand.run()
        assert not errand.fds
        set_up(web)
        errand.run()
        wait_for(lambda: _ended(errand))
        assert (lab.state / "notices.json").exists()
        errand.run()
        assert not errand.fds, "nothing has happened"
        store.add_event("set", "sends no notice")
        errand.run()
        assert not errand.fds
        settings_path().unlink()
        errand.run()
        assert not (lab.state / "notices.json").exists() and not errand.fds
        errand.close()
    assert not web.asked


def test_invalid_settings_are_read_again_after_a_change(lab: Lab, web: Web) -> None:
    set_up(web)
    settings_path().chmod(0o644)
    with lab.store() as store:
        errand = NoticeDispatcher(store)
        errand.run()
        wait_for(lambda: _ended(errand))
        one = end(store)
        errand.run()
        assert not errand.fds, "they are as they were"
        settings_path().chmod(0o600)
        errand.run()
        assert errand.fds
        errand.close()
    wait_for(lambda: bool(web.asked))
    assert sent(web) == [(one, "failed")]


def _ended(errand: NoticeDispatcher) -> bool:
    """Whether the sending process has ended, as the daemon sees it."""
    (fd,) = errand.fds
    return bool(os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG | os.WNOWAIT))


def test_the_daemon_sends_for_a_run_that_was_killed_with_its_guard(
    lab: Lab, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    set_up(web)
    settings_path().write_text(settings_path().read_text() + "\nleast_minutes: 0")
    entry = Path(leave(tmp_path / "run", os.environ, **GONE))
    with lab.store() as store:
        errand = NoticeDispatcher(store)
        errand.run()
        wait_for(lambda: not entry.exists())
        (asked,) = web.asked
        assert asked.body["tasks"][0]["state"] == "crashed"
        errand.run()
        errand.close()
