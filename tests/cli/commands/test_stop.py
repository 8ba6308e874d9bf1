"""What `roost stop` says at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.cli.commands.stop import _report_result, stop_and_report
from roost.operations.lifecycle.stop import StopPending, StopResult
from roost.operations.queue import task_control
from roost.operations.queue.task_control import StopProgress
from tests.messages import Messages


@pytest.mark.parametrize(
    ("state", "was_running", "goes_on"),
    [
        ("succeeded", True, False),
        ("stopped", True, True),
        ("failed", True, True),
        ("succeeded", False, False),
    ],
)
def test_only_what_is_not_finished_can_go_on(
    state: str, was_running: bool, goes_on: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    _report_result(StopResult(1, state, 30, was_running), "runs/one")
    said = capsys.readouterr().err
    assert state in said and ("roost continue runs/one" in said) == goes_on


@pytest.mark.parametrize("now", [False, True])
def test_a_run_that_does_not_stop_soon_can_be_ended(
    now: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [StopPending(1, 30, "training", seconds) for seconds in (0.0, 6.0, 12.0, 18.0)]
    progress = [StopProgress(Path("runs/one"), None, event) for event in events]
    monkeypatch.setattr(task_control, "stop_all", lambda *named, now: iter(progress))
    stop_and_report(("runs/one",), now=now)
    said = capsys.readouterr().err.splitlines()
    hints = [number for number, line in enumerate(said) if line.endswith("roost stop runs/one --now")]
    assert len(said) == 4 and hints == ([] if now else [2])


def test_a_run_that_was_stopped_before_it_could_begin(
    capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    _report_result(StopResult(1, "stopped", None, True), "runs/one")
    said = capsys.readouterr().err
    assert said.startswith("stopped; ") and said.endswith(" roost continue runs/one\n")
    messages.check(said)


def test_a_task_that_was_to_go_on_later(capsys: pytest.CaptureFixture[str], messages: Messages) -> None:
    _report_result(StopResult(2, "stopped", 30, False), "runs/one", "one: ", is_task=True)
    said = capsys.readouterr().err
    assert said.startswith("one: stopped") and "roost continue" not in said
    messages.check(said)
