"""What the server has carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import ConfigError, Refused
from roost.operations import lab
from roost.operations.responses import JournalPage, QueuedTask, SubmitResponse
from roost.serve import request_journal
from roost.serve.routes.dlnest_routes import ChangeCards, ContinueTrain, RunTrain
from roost.serve.routes.runs import SubmitCommand
from tests.messages import Messages


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    return tmp_path


def texts(offset: int | None = None) -> list[str]:
    return [line.split(" ", 2)[2] for line in request_journal.read(offset).lines]


def test_a_line_has_the_parameters_and_the_result() -> None:
    asked = RunTrain(config_path="/a/config.yaml", description="private", no_save=True)
    request_journal.add_entry("run_train", asked, {"task_ID": "01", "package": "/a/runs/x"})
    command = SubmitCommand(command=("curl", "-H", "password"), folder="/b")
    queued = [QueuedTask(f"0{n}", "r", "n", "p") for n in range(9)]
    request_journal.add_entry("submit_command", command, SubmitResponse(queued, None, []))
    request_journal.add_entry("change_devices", ChangeCards(new_devices_IDs=(0, 1)), {})
    assert texts() == [
        "run_train config_path=/a/config.yaml -> 01",
        "submit_command folder=/b priority=0 -> 00 01 02 03 04",
        "change_devices new_devices_IDs=(0, 1)",
    ]


def test_a_failure_has_its_reason_and_no_value_that_was_received() -> None:
    asked = RunTrain(config_path="/a/config.yaml")
    error = ConfigError("is too small, token=hunter2", setting="optimizers.main.lr", received="hunter3")
    request_journal.add_failure("run_train", asked, error)
    assert texts() == [
        "run_train config_path=/a/config.yaml failed: optimizers.main.lr: is too small, token=***"
    ]
    request_journal.add_failure("hold", None, Refused("x" * 5000))
    assert len(texts()[-1]) < 400


@pytest.mark.parametrize("end", ["\n", "\r", "\x1b[2J", "\x85", "\u2028", "\u202e", "\0"])
def test_a_name_cannot_add_a_line(end: str) -> None:
    forged = f"/ä{end}2026-11-22 19:57:48 kill task=x"
    request_journal.add_entry("continue_train", ContinueTrain(record_path=forged), {"task_ID": "01"})
    (line,) = texts()
    assert line.startswith("continue_train record_path=/ä\\") and line.isprintable()


def test_it_is_read_from_an_offset_on_a_thousand_lines_at_a_time() -> None:
    with lab.open_queue() as store, store._write_transaction():
        kinds = (request_journal.KIND, "other")
        store._add_events((None, kind, str(n)) for n in range(1500) for kind in kinds)
    assert texts()[0] == "500" and len(texts()) == 1000  # who never asked before sees the newest
    first = request_journal.read(0)
    assert len(first.lines) == 1000 and texts(first.offset)[0] == "1000"
    last = request_journal.read(first.offset)
    assert len(last.lines) == 500 and request_journal.read(last.offset) == JournalPage(last.offset, [])


def test_an_offset_of_another_queue_begins_from_the_start() -> None:
    for number in range(3):
        request_journal.add_entry("hold", SubmitCommand(command=("x",), folder=f"/{number}"), {})
    at = request_journal.read(None).offset
    assert texts(at) == [] and len(texts(at + 1)) == 3, "of a queue that had come further"
    assert request_journal.read(at + 1).offset == at


def test_what_was_cleared_is_not_read_and_not_lost() -> None:
    assert request_journal.read(None) == JournalPage(0, [])
    request_journal.clear()
    request_journal.add_entry("kill", None, None)
    begin = request_journal.read(None)
    request_journal.clear()
    request_journal.add_entry("clear", None, {})
    assert texts(0) == texts(None) == [] and request_journal.read(0).offset == begin.offset
    request_journal.add_entry("hold", None, None)
    assert texts(0) == ["hold"]
    with lab.open_queue() as store:
        assert [one.text for one in store.events(kind=request_journal.KIND)] == ["kill", "hold"]


def test_an_operation_succeeds_though_the_journal_cannot_be_written(
    state: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    (state / "lab").mkdir(mode=0o755)
    (state / "lab").chmod(0o755)
    request_journal.add_entry("stop", None, None)
    said = capsys.readouterr().err
    assert "stop" in said and said.count("\n") == 1
    messages.check(said)
