"""Everything worth knowing of one package."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from roost.analysis import analysis_folder
from roost.base.errors import NotFound
from roost.config import layers
from roost.operations.reading.show import BlackBoxDetails, show
from roost.package.package import PackageFolder
from roost.package.package_draft import prepare_training
from roost.package.results import initial_weights, skipped_steps
from roost.package.results.initial_weights import InitialWeights
from roost.package.results.skipped_steps import SkippedStep
from tests.dlnest_project import dlnest_project
from tests.operations.packages import ROWS, TIMES, VALUES, package, record_rows, session
from tests.package.results.test_black_box import box


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
    assert shown.output is None, "as of a run of roost.init"
    made.output.touch()
    assert show(made.path).output == str(made.output)


def test_settings_are_those_in_effect(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    made.new_session({"overrides": ["max_epochs=9"], "inexact": ["a: 1 -> 2"]})
    shown = show(made.path)
    assert shown.settings["max_epochs"] == 9
    assert shown.sessions[1].overrides == ["max_epochs=9"]
    assert shown.inexact == ["a: 1 -> 2"]


def test_devices_and_strategy_are_those_of_the_newest_session(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped", values={**VALUES, "devices": "auto"})
    assert "strategy" not in show(made.path).settings
    made.new_session({"overrides": [], "devices": 2, "strategy": "ddp", "ranks": 2})
    made.new_session({"overrides": [], "devices": 1, "strategy": "single", "ranks": 1})
    settings = show(made.path).settings
    assert (settings["devices"], settings["strategy"]) == (1, "single")


def test_in_dlnests_contract_they_are_in_the_section_of_roost(tmp_path: Path) -> None:
    """There ``devices`` is a key of the user."""
    made = prepare_training(layers.load(dlnest_project(tmp_path / "p", devices="mine"))).create("one")
    made.new_session({"overrides": ["epochs=9"], "devices": 2, "strategy": "ddp", "ranks": 2})
    shown = show(made.path)
    assert (shown.settings["devices"], shown.settings["epochs"]) == ("mine", 9)
    assert (shown.settings["roost"]["devices"], shown.settings["roost"]["strategy"]) == (2, "ddp")
    assert "strategy" not in shown.settings


def test_where_the_time_went_is_told_apart_from_the_metrics(tmp_path: Path) -> None:
    shown = show(package(tmp_path / "runs", rows=[{**row, **TIMES} for row in ROWS]).path)
    assert shown.metrics.keys() == {"train/loss", "valid/loss", "lr", "test/loss"}
    assert shown.time is not None and (shown.time.steps, shown.time.samples) == (30, 180)
    assert shown.time.seconds == pytest.approx(0.18) and shown.time.host_mb == 400.0
    assert show(package(tmp_path / "runs", "older").path).time is None


def test_steps_that_were_skipped(tmp_path: Path) -> None:
    """Not those that a later session undid."""
    made = package(tmp_path / "runs", state="stopped")
    assert show(made.path).skipped == []
    for step in (7, 12, 29):
        told = SkippedStep(
            session=1, step=step, epoch=0, batch=step - 1, kind="error", error="no", samples=[3]
        )
        skipped_steps.append(made.path / skipped_steps.NAME, told)
    assert [one.step for one in show(made.path).skipped] == [7, 12, 29]
    session(made, "stopped")
    record_rows(made, 2, 20, [])
    assert [one.step for one in show(made.path).skipped] == [7, 12]
    assert msgspec.json.decode(msgspec.json.encode(show(made.path)))["skipped"][1]["samples"] == [3]


def test_the_step_that_failed_last(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="failed")
    assert show(made.path).black_box is None
    for number, step in enumerate((7, 9)):
        box(made.blackbox, number, step)
    assert show(made.path).black_box == BlackBoxDetails(
        9, 0, "ValueError: no", [3, 1], str(made.blackbox / "state_1.ckpt")
    )


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


def analysis(made: PackageFolder, state: str, *, result: object = None, **asked: object) -> Path:
    """Adds an analysis as it would have been recorded."""
    place = analysis_folder.create(made.path / analysis_folder.NAME)
    analysis_folder.write_request(
        place, {"script": {"path": "/home/me/look.py"}, "checkpoint": None, **asked}
    )
    body = {"state": state, "started": 1_800_000_000.0, "seconds": 2.0, "error": None}
    (place / analysis_folder.RECORD).write_bytes(msgspec.json.encode(body))
    if result is not None:
        (place / analysis_folder.RESULT).write_bytes(msgspec.json.encode(result))
    return place


def test_analyses(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    analysis(made, "succeeded", result={"checkpoint": {"id": 2, "step": 30}})
    analysis(made, "failed", checkpoint=1, result={"checkpoint": "two"})
    analysis(made, "stopped", untrained=True, result=[1])
    (made.path / analysis_folder.NAME / "9").mkdir()  # its program was killed before it could ask
    shown = show(made.path).analyses
    assert [(one.number, one.state, one.checkpoint) for one in shown] == [
        (1, "succeeded", 2),
        (2, "failed", 1),
        (3, "stopped", None),
    ]
    assert shown[2].untrained and shown[0].script == "/home/me/look.py" and shown[0].seconds == 2.0
    assert shown[0].folder == str(made.path / "analysis" / "1")
    assert show(package(tmp_path / "runs", "other").path).analyses == []


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        show(tmp_path)


def test_how_many_media_of_which_steps(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert show(made.path).media == {}
    for name in (
        "20/a.png",
        "20/b.txt",
        "3/a.png",
        "3/.b.npy.tmp-0123456789ab",
        "notes/x",
        "4/.c.tmp-0123456789ab",
    ):
        path = made.path / "media" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert show(made.path).media == {3: 1, 20: 2}
    assert msgspec.json.decode(msgspec.json.encode(show(made.path)))["media"] == {"3": 1, "20": 2}


def test_what_a_run_began_with(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert show(made.path).began_with == [] and show(made.path).model is None
    one = InitialWeights(
        path="a\udcff", found="/x", about="a file", sha256="ab", size=3, loaded="1 of 2 tensors loaded"
    )
    initial_weights.write(made.path, [one])
    made.model_summary.write_text("MODULE\n")
    shown = show(made.path)
    assert [(one.path, one.loaded) for one in shown.began_with] == [("a\\udcff", "1 of 2 tensors loaded")]
    assert shown.model == str(made.model_summary)
