from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from roost.lab.notices import notice_events, run_notice
from roost.lab.notices.receivers import NoticeSettings
from roost.lab.queue.queue_store import QueueStore
from roost.lab.scheduling.durability_events import NOT_DURABLE
from roost.lab.scheduling.stall_events import STALLED
from tests.lab.notices.receivers import Web
from tests.messages import Messages
from tests.package.remote import statuses

END = {"state": "failed", "reason": "error", "error": "boom", "started": 1000.0, "ended": 1000.0 + 3600}


def package(folder: Path, **record: Any) -> Path:
    made = folder / "net"
    (made / "sessions").mkdir(parents=True)
    (made / "sessions" / "1.json").write_text(json.dumps(record))
    return made


@pytest.mark.parametrize(
    ("asked", "changed", "state"),
    [
        ({}, {}, "failed"),
        ({}, {"ended": 1000.0 + 599}, None),
        ({"least_minutes": 0}, {"ended": 1000.0 + 1}, "failed"),
        ({"least_minutes": 61}, {}, None),
        ({"events": ("end",)}, {}, None),
        ({}, {"state": "stopped", "reason": "signal", "error": None}, "stopped"),
        ({}, {"state": "running", "ended": None}, "crashed"),  # nobody holds the package's lock
        ({}, {"started": "x"}, "failed"),
    ],
)
def test_notice_of_an_end(
    tmp_path: Path,
    web: Web,
    asked: dict[str, Any],
    changed: dict[str, Any],
    state: str | None,
    messages: Messages,
) -> None:
    settings = NoticeSettings(receivers={"a": web.receiver()}, **asked)
    assert run_notice.send(package(tmp_path, **END | changed), 1, settings) == []
    tasks = [task for one in web.asked for task in one.body["tasks"]]
    assert [task["state"] for task in tasks] == ([] if state is None else [state])
    if state == "stopped":
        messages.check(tasks[0]["why"])
    assert all(task["id"] == "" and task["package"] == str(tmp_path / "net") for task in tasks)


def test_no_notice_of_a_run_that_goes_on(tmp_path: Path, web: Web) -> None:
    settings = NoticeSettings(receivers={"a": web.receiver()})
    made = package(tmp_path, **END | {"state": "running", "ended": None})
    with (made / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run_notice.send(made, 1, settings) == []
    assert web.asked == []


def test_a_stall_sends_a_notice_after_any_duration(tmp_path: Path, web: Web) -> None:
    stall = {"time": 1_700_000_000.0, "idle_seconds": 60.0, "step": 3, "phase": "validating"}
    made = package(tmp_path, **{**END, "state": "running", "stalls": [stall]})
    settings = NoticeSettings(receivers={"a": web.receiver()})
    assert run_notice.send(made, 1, settings, kind=STALLED) == []
    assert all(fact in web.asked[0].body["tasks"][0]["why"] for fact in ("step 3", "validating"))
    assert run_notice.send(package(tmp_path / "b", **END), 1, settings, kind=STALLED) == []
    assert run_notice.send(made, 9, settings) == [] and len(web.asked) == 1


def test_a_copy_that_does_not_get_further_sends_a_notice(tmp_path: Path, web: Web) -> None:
    made = package(tmp_path, **{**END, "state": "running"})
    settings = NoticeSettings(receivers={"a": web.receiver()})
    statuses.write(made)
    assert run_notice.send(made, 1, settings, kind=NOT_DURABLE) == [] and not web.asked
    statuses.failing(made, seconds=700, step=10)
    assert run_notice.send(made, 1, settings, kind=NOT_DURABLE) == []
    (notice,) = (one.body for one in web.asked)
    assert notice["event"] == "stall" and "NOT durable since step 10" in notice["tasks"][0]["why"]


def test_the_id_is_unique_and_stable(tmp_path: Path, web: Web) -> None:
    settings = NoticeSettings(receivers={"a": web.receiver()})
    made = [package(tmp_path / name, **END) for name in ("a", "b")]
    for one in (*made, made[0]):
        run_notice.send(one, 1, settings)
    first, second, again = (asked.body["id"] for asked in web.asked)
    assert first == again != second and first.startswith("run.")


def test_a_failed_delivery_is_recorded_in_the_lab(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    web.status = 404
    made = package(tmp_path, **END)
    monkeypatch.setattr("sys.argv", ["of_run.py", str(made), "1"])
    notice_events.settings_path().parent.mkdir()
    notice_events.settings_path().touch(mode=0o600)
    notice_events.settings_path().write_text(f"receivers: {{a: {{kind: webhook, url: '{web.url}'}}}}")
    assert run_notice.main() == 1
    notice_events.settings_path().chmod(0o644)
    assert run_notice.main() == 1
    with QueueStore.open() as store:
        first, second = (event.text for event in store.events(kind="not told"))
    assert all(fact in first for fact in ("a (webhook)", "404", str(made)))
    assert "chmod 600" in second and "s3cret" not in first + second
