from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.lab.notices.cursor import Cursor
from roost.lab.notices.kinds import WRONG_SETTINGS, path
from roost.lab.notices.settings import Receiver, Settings
from roost.lab.notices.tell import NOT_TOLD, main, tell
from roost.lab.store import Store
from roost.lab.task import FAILED, RUNNING, SUCCEEDED
from tests.lab.notices.receivers import Web
from tests.lab.queued import task


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "lab") as store:
        yield store


def end(store: Store, name: str = "net", state: str = FAILED, seconds: float = 60.0) -> str:
    """A task comes, runs and ends."""
    one = task(name=name)
    store.submit([one])
    running = store.move(store.start(one, [], None), RUNNING, session=1, started=1000.0)
    store.move(running, state, reason="why not", started=1000.0, ended=1000.0 + seconds, exit_code=1)
    return one.id


def told(web: Web) -> list[str]:
    return [asked.body["title"] for asked in web.asked]


def run(store: Store, *receivers: Receiver, **asked: object) -> None:
    named = {f"r{n}": one for n, one in enumerate(receivers)}
    cursor = Cursor.load(store) or Cursor.begin(store, 0.0)
    tell(store, Settings(receivers=named, **asked), cursor, pauses=(0,))  # type: ignore[arg-type]


def test_each_event_is_told_once_to_each(store: Store, web: Web) -> None:
    other = Web()
    end(store, "one")
    run(store, web.receiver(), other.receiver("slack"))
    run(store, web.receiver(), other.receiver("slack"))
    end(store, "two", SUCCEEDED)
    run(store, web.receiver(), other.receiver("slack"))
    other.close()
    assert told(web) == ["roost: one failed", "roost: two succeeded"]
    assert len(other.asked) == 2 and other.asked[0].body["text"].startswith("roost: one failed\nwhy")


def test_who_was_told_before_a_kill_is_told_no_second_time(store: Store, web: Web) -> None:
    """The one who tells dies between two receivers: the first one's answer was noted."""

    class Killed(BaseException):
        pass

    class Cut(Cursor):
        def note_told(self, notice: str, receiver: str) -> None:
            super().note_told(notice, receiver)
            raise Killed

    other = Web()
    end(store)
    named = {"a": web.receiver(), "b": other.receiver()}
    with pytest.raises(Killed):
        tell(store, Settings(receivers=named), Cut.begin(store, 0.0))
    assert (len(web.asked), len(other.asked)) == (1, 0)
    found = Cursor.load(store)
    assert found is not None
    tell(store, Settings(receivers=named), found)
    other.close()
    assert (len(web.asked), len(other.asked)) == (1, 1)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"events": ("fail",)}, ["long failed", "short failed"]),
        ({"events": ("end",)}, ["good succeeded"]),
        ({"events": ("stall",)}, ["long stalled"]),
        ({"least_minutes": 2}, ["long failed", "long stalled"]),
    ],
)
def test_what_is_not_asked_for_is_not_told(
    store: Store, web: Web, asked: dict[str, object], expected: list[str]
) -> None:
    stalled = end(store, "long", seconds=600.0)
    store.note("stalled", "no step", task=stalled)
    end(store, "short")
    end(store, "good", SUCCEEDED)
    waits = task(name="waits")
    store.submit([waits])
    store.ask(waits.id, "stop")
    run(store, web.receiver(), **asked)
    assert sorted(told(web)) == sorted(f"roost: {one}" for one in expected)


def test_a_sweep_that_ends_at_once_is_one_notice(store: Store, web: Web) -> None:
    for number in range(110):
        end(store, f"n{number}")
    run(store, web.receiver())
    (asked,) = web.asked
    assert asked.body["title"].startswith("roost: 110 tasks on ") and len(asked.body["tasks"]) == 30


def test_one_who_cannot_be_told_holds_up_nobody_and_is_noted(store: Store, web: Web) -> None:
    bad = Web(500)
    first, second = end(store, "one"), end(store, "two")
    run(store, bad.receiver(), web.receiver())
    bad.close()
    assert told(web) == ["roost: one failed", "roost: two failed"]
    assert len(bad.asked) == 3, "two tries of the first, one of the next"
    noted = store.events(kind=NOT_TOLD)
    assert [event.task for event in noted] == [first, second]
    assert noted[0].text.startswith("r0 (webhook): it answered 500") and "s3cret" not in noted[0].text
    run(store, bad.receiver(), web.receiver())
    assert len(store.events(kind=NOT_TOLD)) == 2, "what was given up is not begun again"


def test_settings_that_will_not_do_are_told_once(
    store: Store, web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["tell.py", str(store.folder)])
    path().parent.mkdir()
    path().write_text(f"receivers: {{a: {{kind: webhook, url: '{web.url}'}}}}")
    path().chmod(0o644)
    end(store)
    assert (main(), main()) == (WRONG_SETTINGS, WRONG_SETTINGS)
    (noted,) = store.events(kind=NOT_TOLD)
    assert "chmod 600" in noted.text and not web.asked
    before = time.time()
    path().chmod(0o600)
    assert path().stat().st_ctime >= before - 1
    assert main() == 0 and not web.asked, "what was before is not told"
    end(store, "later")
    assert main() == 0 and told(web) == ["roost: later failed"]
