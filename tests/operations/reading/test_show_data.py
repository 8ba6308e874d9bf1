from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from roost.base.errors import ConfigError, NotFound, Refused, RoostError
from roost.config import layers
from roost.config.dlnest.dlnest_settings import DlnestSettings
from roost.operations.reading.show_data import (
    DataReport,
    ShowDataRequest,
    _draft_from_package,
    _with_placeholders,
    show_data,
)
from roost.operations.sessions.running_session import follow
from roost.package.kinds import PackageKind
from roost.package.package_draft import prepare_training
from roost.package.sessions import Session
from tests.dlnest_project import dlnest_project
from tests.messages import Messages
from tests.operations.packages import VALUES, package, project, session


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it works."""
    made = tmp_path / "tmp"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


def shown(request: ShowDataRequest) -> DataReport:
    with show_data(request) as started:
        *_, ended = follow(started.running)
        assert isinstance(ended, Session) and started.process.wait(100) == 0
        assert started.stage() == "valid", "the last set"
        return started.outcome(ended)


def test_what_came_of_it(place: Path, tmp_path: Path) -> None:
    """The config names no Runner, and nothing ends its run."""
    config = project(tmp_path / "project")
    lines = [
        line for line in config.read_text().splitlines() if not line.startswith(("runner:", "max_epochs:"))
    ]
    config.write_text("\n".join(lines) + "\n")
    (config.parent / "Model" / "Runner.py").unlink()
    found = shown(ShowDataRequest(config=config, overrides=["data.batch_size=50"]))
    assert (found.state, found.exit_code, found.failed, found.warnings) == ("succeeded", 0, None, [])
    assert [split.name for split in found.splits] == ["train", "valid"]
    assert found.splits[0].batch is not None and found.splits[0].batch.num_samples == 50
    assert list(place.iterdir()) == [] and not (config.parent / "runs").exists()


def test_a_package_shows_its_own(place: Path, tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", values={**VALUES, "data": {"batch_size": 50}})
    (tmp_path / "runs-source").rename(tmp_path / "moved")
    before = {path: path.stat().st_mtime_ns for path in made.path.rglob("*")}
    found = shown(ShowDataRequest(config=made.path, overrides=["data.shuffle=false"]))
    assert " 50 " in found.splits[0].plan
    messages.check(found.splits[0].plan)
    assert {path: path.stat().st_mtime_ns for path in made.path.rglob("*")} == before


def test_settings_of_a_package_are_those_in_effect(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    number = made.new_session({"overrides": ["+data.batch_size=7"], "kind": "train"})
    (made.path / "records" / f"{number}.jsonl").touch()
    session(made, "succeeded")
    plan = _draft_from_package(ShowDataRequest(config=made.path))
    assert plan.settings.data.batch_size == 7 == made.settings["data"]["batch_size"]
    (made.path / "args.json").write_text('{\n  "runner": "Model/Runner.py:Runner",\n  "dataset": 3\n}\n')
    with pytest.raises(ConfigError) as refused:
        _draft_from_package(ShowDataRequest(config=made.path, overrides=["+max_epochs=1"]))
    assert refused.value.setting == "dataset"
    assert refused.value.where == "args.json:3"


def test_what_is_asked_for_stays(tmp_path: Path) -> None:
    config = layers.load(project(tmp_path / "project"))
    assert _with_placeholders(config).values == config.values


@pytest.mark.parametrize(
    ("override", "error"), [("data.batch_size=0", ConfigError), ("dataset=No.py:No", ConfigError)]
)
def test_what_a_run_would_refuse_leaves_nothing(
    override: str, error: type[RoostError], place: Path, tmp_path: Path
) -> None:
    config = project(tmp_path / "project")
    with pytest.raises(error), show_data(ShowDataRequest(config=config, overrides=[override])):
        pytest.fail("it must not start")
    assert list(place.iterdir()) == []


def test_no_config_and_a_package_without_a_runner(tmp_path: Path) -> None:
    for config in (tmp_path / "no.yaml", tmp_path):
        with pytest.raises(NotFound), show_data(ShowDataRequest(config=config)):
            pytest.fail("it must not start")
    made = package(tmp_path / "runs", values={"lr": 0.1})
    with pytest.raises(Refused) as refused, show_data(ShowDataRequest(config=made.path)):
        pytest.fail("it must not start")
    assert "roost.open_package" in str(refused.value)
    assert refused.value.where == made.path


def test_a_project_of_dlnest_gets_no_settings_of_ours(tmp_path: Path) -> None:
    tools = tmp_path / "tools.py"
    tools.write_text("x = 1\n")
    config = layers.load(dlnest_project(tmp_path / "p", other_file_paths=[str(tools)]))
    assert _with_placeholders(config) is config
    made = prepare_training(config).create("one")
    plan = _draft_from_package(ShowDataRequest(config=made.path, overrides=["epochs=2"]))
    assert (plan.kind, plan.config.values["epochs"]) == (PackageKind.DLNEST, 2)
    assert plan.places == {str(tools): "tools.py"} and isinstance(plan.settings, DlnestSettings)
