"""What `roost stop` says at the end."""

from __future__ import annotations

import pytest

from roost.cli.commands.stop import _tell
from roost.operations.stop import Ended


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
    _tell(Ended(1, state, 30, was_running), "runs/one")
    said = capsys.readouterr().err
    assert state in said and ("to go on: roost continue runs/one" in said) == goes_on


def test_a_run_that_was_stopped_before_it_could_begin(capsys: pytest.CaptureFixture[str]) -> None:
    _tell(Ended(1, "stopped", None, True), "runs/one")
    assert capsys.readouterr().err == "stopped; to go on: roost continue runs/one\n"


def test_a_task_that_was_to_go_on_later(capsys: pytest.CaptureFixture[str]) -> None:
    _tell(Ended(2, "stopped", 30, False), "runs/one", "one: ", is_task=True)
    assert capsys.readouterr().err == "one: stopped while it waited to go on\n"
