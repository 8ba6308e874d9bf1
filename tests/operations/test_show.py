"""Everything worth knowing of one package."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from roost.base.errors import NotFound
from roost.operations.show import show
from tests.operations.packages import package, session


def test_a_run_that_ended(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    (made.checkpoints / "state_0.ckpt.corrupt").mkdir()
    shown = show(made.path)
    assert shown.path == str(made.path) and shown.summary.state == "succeeded"
    assert shown.metrics == {"train/loss": 0.5, "valid/loss": 0.75, "lr": 0.1, "test/loss": 0.7}
    assert [(one.id, one.step, one.tracks, one.newest) for one in shown.checkpoints] == [
        (0, 10, [], False),
        (1, 20, ["fast", "best"], False),
        (2, 30, ["fast"], True),
    ]
    assert shown.checkpoints[0].size_bytes > 0
    assert shown.set_aside == ["state_0.ckpt.corrupt"]
    assert [(one.number, one.state, one.exit_code, one.seconds) for one in shown.sessions] == [
        (1, "succeeded", 0, 60.0)
    ]
    assert shown.output == str(made.output)


def test_settings_are_those_in_effect(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    made.new_session({"overrides": ["max_epochs=9"], "inexact": ["a: 1 -> 2"]})
    shown = show(made.path)
    assert shown.settings["max_epochs"] == 9
    assert shown.sessions[1].overrides == ["max_epochs=9"]
    assert shown.inexact == ["a: 1 -> 2"]


def test_a_run_that_runs_tells_its_pid(tmp_path: Path) -> None:
    assert show(package(tmp_path / "runs", state="running").path).sessions[0].pid is not None
    assert show(package(tmp_path / "runs", "two", state="stopped").path).sessions[0].pid is None


def test_a_package_that_never_ran(tmp_path: Path) -> None:
    shown = show(package(tmp_path / "runs", state="new").path)
    assert shown.sessions == [] and shown.checkpoints == [] and shown.metrics == {}


def test_what_failed(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    session(made, "failed", error="ValueError: no", exit_code=1)
    assert show(made.path).sessions[1].error == "ValueError: no"


def test_is_json(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", rows=[{"step": 1, "epoch": 0, "valid/loss": float("nan")}])
    body = msgspec.json.decode(msgspec.json.encode(show(made.path)))
    assert body["metrics"] == {"valid/loss": None} and body["summary"]["state"] == "succeeded"


@pytest.mark.parametrize(
    "command",
    [
        ["roost", "run", "--token", "hunter2", "-c", "x"],
        ["roost", "run", "api_key=hunter2"],
        ["roost", "run", "api_key=", "hunter2"],
        ["roost", "run", "Authorization:", "Bearer", "hunter2"],
        ["roost", "run", "--password", "-hunter2"],
    ],
)
def test_the_command_line_shows_no_credential(tmp_path: Path, command: list[str]) -> None:
    made = package(tmp_path / "runs", state="new")
    request = {**made.request, "command": command}
    (made.path / "request.json").write_bytes(msgspec.json.encode(request))
    shown = show(made.path).command
    assert shown.startswith("roost run ") and "***" in shown and "hunter2" not in shown


def test_an_ordinary_command_line_is_shown_whole(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="new")
    command = ["roost", "run", "-c", "x.yaml", "-d", "tokens, all of them", "--name", "a"]
    (made.path / "request.json").write_bytes(msgspec.json.encode({**made.request, "command": command}))
    assert show(made.path).command == " ".join(command)


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        show(tmp_path)
