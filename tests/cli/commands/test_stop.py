"""What `roost stop` says at the end."""

from __future__ import annotations

import pytest

from roost.cli.commands.stop import _report_result
from roost.operations.lifecycle.stop import StopResult
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
