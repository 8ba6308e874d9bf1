"""What users of the lab may get wrong: one clear line, the right exit code, and nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from roost import __version__
from roost.cli.__main__ import main
from roost.lab.queue.task import FAILED, PENDING, STOPPED, SUCCEEDED
from roost.operations import lab
from roost.operations.devices import devices
from tests.lab.labs import Lab
from tests.lab.queued import task
from tests.messages import Messages
from tests.operations.packages import project

COMMAND = ("--", "true")

WRONG = {
    "more cards than there are": (
        "submit --gpus 3",
        COMMAND,
        5,
        "3 cards.* 2 ",
    ),
    "more memory than a card has": (
        "submit --gpus 1 -m 30GB",
        COMMAND,
        5,
        r"30\.0 GB.*GPU 0.*23\.5 GB.*24\.0 GB",
    ),
    "no memory": ("submit --gpus 1 -m 0", COMMAND, 2, "-m: .*'0'"),
    "memory of no card": ("submit -CPU -m 1GB", COMMAND, 2, "-m"),
    "an unknown task": ("why nothing", (), 3, "'nothing'"),
    "an unknown task to stop": ("stop waits nothing", (), 3, "'nothing'"),
    "a name that is nearly one": ("kill wait", (), 3, "'waits'"),
    "an ambiguous beginning": ("stop 0a", (), 2, r"0a2 \(also, pending\), 0a1 \(waits,"),
    "one that has ended": ("stop over", (), 5, "succeeded"),
    "the priority of one that has ended": ("priority stopped 1", (), 5, "stopped"),
    "a priority beyond reason": ("submit --priority 10000000", COMMAND, 2, "--priority: .*10000000"),
    "after one that failed": ("submit --after failed", COMMAND, 5, r"\(failed\)"),
    "after one that was stopped": ("submit --after stopped", COMMAND, 5, r"\(stopped\)"),
    "after no task": ("submit --after nothing", COMMAND, 3, "'nothing'"),
    "after several at once": ("submit --after over,waits", COMMAND, 3, "--after over --after waits"),
    "no moment": ("submit --begin whenever", COMMAND, 2, "--begin: .*'whenever'"),
    "no duration": ("submit --time-limit soon", COMMAND, 2, "--time-limit: .*'soon'"),
    "no command": ("submit --gpus 1 --", (), 2, "--"),
    "an empty range": ("submit p/config.yaml seed=5..1", (), 2, r"seed: .*'5\.\.1'"),
    "an empty value": ("submit p/config.yaml seed=1,,2", (), 2, "seed: "),
    "a value twice": ("submit p/config.yaml seed=1,1", (), 2, "seed: "),
    "a sweep without end": ("submit p/config.yaml seed=0..99999", (), 2, "10,000"),
    "a sweep of what is no number": ("submit p/config.yaml seed=1,x", (), 4, "seed: .*'x'"),
    "a sweep of no setting": ("submit p/config.yaml sed=1,2", (), 4, "'sed'"),
    "a card that is not there": ("devices -d 0,7", (), 2, "GPU 7"),
    "an empty list of cards": ("devices -d ,", (), 2, "-d: "),
    "more free than there is": ("devices --keep-free 24GB", (), 2, r"24\.0 GB"),
    "a card to drain that is not there": ("drain 9", (), 2, "GPU 9"),
    "a time without an end": ("drain 0 --from 22:00", (), 2, "--from"),
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A queue of a few tasks, which no daemon sees to."""
    own = Lab(tmp_path_factory.mktemp("lab"), "sim:2x24GB")
    project(own.folder / "p")
    with own.here():
        with lab.open_queue() as store:
            store.restore(
                [
                    task(id="0a1", name="waits", held=True),
                    task(id="0a2", name="also", held=True),
                    task(id="0b1", name="over", state=SUCCEEDED),
                    task(id="0c1", name="failed", state=FAILED),
                    task(id="0d1", name="stopped", state=STOPPED),
                ]
            )
        devices.change(devices.DeviceChange(allowed="1", keep_free_mb=512))
        devices.change(devices.DeviceChange(allowed="all"))
        devices.drain("1")
        yield own
    own.close()


def state_of(here: Lab) -> list[Any]:
    """Everything that a command may change."""
    with here.store() as store:
        files = sorted(str(path) for path in here.folder.rglob("*") if "state" not in path.parts)
        return [here.tasks(), store.settings(), lab.status().daemon, files]


def typed(text: str, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ended:
        main([*text.split(), *more])
    said = capsys.readouterr()
    assert said.out == ""
    return ended.value.code, said.err


@pytest.mark.parametrize("name", WRONG)
def test_one_clear_line_and_nothing_is_changed(
    here: Lab, name: str, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    text, more, code, says = WRONG[name]
    before = state_of(here)
    ended, said = typed(text, more, capsys)
    assert (ended, len(said.splitlines())) == (code, 1), said
    assert said.startswith("error: ") and re.search(says, said), said
    messages.check(said.replace(str(here.folder), "<folder>"))
    assert state_of(here) == before


def test_tasks_that_would_wait_for_each_other(here: Lab) -> None:
    """No command can request it: a dependency is in the queue already."""
    circle = [task(id="0e1", after=("0e2",)), task(id="0e2", after=("0e1",))]
    before = state_of(here)
    with lab.open_queue() as store, pytest.raises(Exception, match=r"0e\d → 0e\d"):
        store.submit(circle)
    assert state_of(here) == before


@pytest.mark.parametrize("text", ["submit -CPU", "hold waits", "stop waits"])
def test_a_daemon_of_another_version(
    here: Lab, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "__version__", "9.9.9")
    started = lab.start()
    before = state_of(here)
    try:
        ended, said = typed(text, COMMAND if text.startswith("submit") else (), capsys)
        assert (ended, len(said.splitlines())) == (5, 1)
        assert f"pid {started.pid}" in said and f"roost {__version__}" in said and "9.9.9" in said
        assert "`roost lab restart`" in said
        assert [one.state for one in here.tasks()[:2]] == [PENDING, PENDING]
        assert state_of(here)[3] == before[3]
    finally:
        lab.stop()
