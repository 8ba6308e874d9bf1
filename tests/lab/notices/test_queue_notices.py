from __future__ import annotations

import errno
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base import durable
from roost.lab.notices.event_cursor import NoticeCursor
from roost.lab.notices.notice_events import INVALID_SETTINGS_EXIT_CODE, settings_path
from roost.lab.notices.queue_notices import NOT_SENT, main, send_pending
from roost.lab.notices.receivers import NoticeSettings, Receiver
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import SUCCEEDED
from tests.lab.notices.ends import end
from tests.lab.notices.receivers import Web
from tests.lab.queued import task
from tests.waiting import wait_for


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QueueStore]:
    with QueueStore.open(tmp_path / "lab") as store:
        yield store


def wait_for_the_clock_of_files(folder: Path) -> None:
    """It is a few milliseconds behind the other one."""
    now, file = time.time(), folder / "clock"

    def is_later() -> bool:
        file.touch()
        return file.stat().st_ctime > now

    wait_for(is_later, 5.0)


def sent(web: Web) -> list[str]:
    return [asked.body["title"] for asked in web.asked]


def run(store: QueueStore, *receivers: Receiver, **asked: object) -> None:
    named = {f"r{n}": one for n, one in enumerate(receivers)}
    cursor = NoticeCursor.load(store) or NoticeCursor.create(store, 0.0)
    send_pending(store, NoticeSettings(receivers=named, **asked), cursor, pauses=(0,))  # type: ignore[arg-type]


def test_each_receiver_gets_each_event_once(store: QueueStore, web: Web) -> None:
    other = Web()
    end(store, "one")
    run(store, web.receiver(), other.receiver("slack"))
    run(store, web.receiver(), other.receiver("slack"))
    end(store, "two", SUCCEEDED)
    run(store, web.receiver(), other.receiver("slack"))
    other.close()
    assert sent(web) == ["roost: one failed", "roost: two succeeded"]
    assert len(other.asked) == 2 and other.asked[0].body["text"].startswith("roost: one failed\n")


@pytest.mark.parametrize(("before", "after"), [(1, 6), pytest.param(6, 2, marks=pytest.mark.soak)])
def test_after_a_kill_a_notice_is_repeated_only_if_it_could_not_be_recorded(
    tmp_path: Path, web: Web, before: int, after: int
) -> None:
    """More events happen meanwhile, so that the rest would be batched differently: one alone, then seven
    together."""
    program = Path(__file__).with_name("kill_program.py")
    given = [str(tmp_path), web.url, str(before), str(after)]
    done = subprocess.run([sys.executable, program, *given], check=True, capture_output=True, text=True)
    steps = done.stdout.split()
    assert {"asking", "asked", "answered", "writing", "written"} == set(steps) and len(steps) > 10
    twice = []
    for number, step in enumerate(steps):
        counts = Counter(
            (name, task["id"])
            for asked in web.asked
            if (name := asked.path.removeprefix(f"/hook/s3cret-path/{number}/")) in ("a", "b")
            for task in asked.body["tasks"]
        )
        assert len(counts) == 2 * (before + after), f"killed at {step} ({number})"
        twice += [step] * any(count > 1 for count in counts.values())
        assert max(counts.values()) <= 2
    assert set(twice) == {"asked", "answered", "writing"} and twice.count("writing") == 2


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"events": ("fail",)}, ["long failed", "short failed"]),
        ({"events": ("end",)}, ["good succeeded"]),
        ({"events": ("stall",)}, ["long stalled"]),
        ({"least_minutes": 2}, ["long failed", "long stalled"]),
    ],
)
def test_only_selected_events_send_notices(
    store: QueueStore, web: Web, asked: dict[str, object], expected: list[str]
) -> None:
    stalled = end(store, "long", seconds=600.0)
    store.add_event("stalled", "no step", task=stalled)
    end(store, "short")
    end(store, "good", SUCCEEDED)
    waits = task(name="waits")
    store.submit([waits])
    store.request_stop(waits.id, "stop")
    run(store, web.receiver(), **asked)
    assert sorted(sent(web)) == sorted(f"roost: {one}" for one in expected)


def test_a_sweep_that_ends_at_once_is_one_notice(store: QueueStore, web: Web) -> None:
    for number in range(110):
        end(store, f"n{number}")
    run(store, web.receiver())
    (asked,) = web.asked
    assert asked.body["title"].startswith("roost: 110 ") and len(asked.body["tasks"]) == 30


def test_an_unreachable_receiver_is_recorded_and_delays_no_other(store: QueueStore, web: Web) -> None:
    bad = Web(500)
    first, second = end(store, "one"), end(store, "two")
    run(store, bad.receiver(), web.receiver())
    bad.close()
    assert sent(web) == ["roost: one failed", "roost: two failed"]
    assert len(bad.asked) == 3, "two tries of the first, one of the next"
    noted = store.events(kind=NOT_SENT)
    assert [event.task for event in noted] == [first, second]
    assert "r0 (webhook)" in noted[0].text and "500" in noted[0].text and "s3cret" not in noted[0].text
    run(store, bad.receiver(), web.receiver())
    assert len(store.events(kind=NOT_SENT)) == 2, "what was given up is not begun again"


def test_invalid_settings_are_recorded_once_and_events_meanwhile_are_sent_later(
    store: QueueStore, web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["tell.py", str(store.folder)])
    settings_path().parent.mkdir()
    end(store, "before")
    wait_for_the_clock_of_files(tmp_path)
    settings_path().write_text(f"receivers: {{a: {{kind: webhook, url: '{web.url}'}}}}")
    settings_path().chmod(0o644)
    assert (main(), main()) == (INVALID_SETTINGS_EXIT_CODE, INVALID_SETTINGS_EXIT_CODE)
    end(store, "meanwhile")
    assert main() == INVALID_SETTINGS_EXIT_CODE
    (noted,) = store.events(kind=NOT_SENT)
    assert "chmod 600" in noted.text and not web.asked
    wait_for_the_clock_of_files(tmp_path)
    settings_path().chmod(0o600)
    assert main() == 0 and sent(web) == ["roost: meanwhile failed"]
    end(store, "later")
    assert main() == 0 and sent(web)[1:] == ["roost: later failed"]


def test_a_notice_that_cannot_be_recorded_is_not_sent(
    store: QueueStore,
    web: Web,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Otherwise the receiver would get it each minute while the disk is full."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["tell.py", str(store.folder)])
    settings_path().parent.mkdir()
    settings_path().touch(mode=0o600)
    settings_path().write_text(f"receivers: {{a: {{kind: webhook, url: '{web.url}'}}}}")
    assert main() == 0
    end(store)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(durable, "write", full)
        assert (main(), main()) == (1, 1)
    assert not web.asked and capsys.readouterr().err.count("No space left") == 2
    assert main() == 0 and len(web.asked) == 1
