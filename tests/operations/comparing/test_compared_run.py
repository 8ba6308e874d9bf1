"""Reading a run for a comparison, whatever its condition."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from roost.base.errors import NotFound
from roost.config import layers
from roost.operations.comparing.compared_run import read_run, require_readable
from roost.operations.comparing.setting_comparison import compare_settings
from roost.package.kinds import PackageKind
from roost.package.package_draft import prepare_training
from tests.dlnest_project import dlnest_project
from tests.operations.comparing.runs import ENVIRONMENT, make
from tests.operations.packages import package, session


def test_a_whole_package(tmp_path: Path) -> None:
    made = make(tmp_path / "runs", "a", environment=ENVIRONMENT)
    run = read_run(made.path)
    assert run.unreadable == [] and run.settings is not None and run.environment is not None
    assert run.code is not None and run.code.keys() == made.manifest["files"].keys()
    assert run.flat_settings["model.features"] == 8
    assert run.describe().path == str(made.path) and run.describe().data_order is None


def test_the_order_of_the_samples_is_read(tmp_path: Path) -> None:
    made = make(tmp_path / "runs", "a")
    (made.path / "records" / "1.jsonl").write_text('{"session":1,"start_step":0,"data_order":"abc"}\n')
    assert read_run(made.path).describe().data_order == "abc"


@pytest.mark.parametrize(
    ("file", "missing"),
    [
        ("args.json", "settings"),
        ("manifest.json", "code"),
        ("environment.json", "environment"),
        ("request.json", "request.json"),
        ("sessions/1.request.json", "sessions"),
    ],
)
def test_of_a_damaged_package_the_rest_is_read(tmp_path: Path, file: str, missing: str) -> None:
    made = make(tmp_path / "runs", "a", environment=ENVIRONMENT)
    (made.path / file).write_text('{"pid": "x", "stack": 1}' if "sessions" in file else '{"stack"')
    run = read_run(made.path)
    assert any(one.startswith(f"{missing}: ") for one in run.unreadable), run.unreadable
    parts = {"settings": run.settings, "code": run.code, "environment": run.environment}
    for name, part in parts.items():
        needed = ("settings", "sessions", "request.json") if name == "settings" else (name,)
        is_lost = missing in needed
        assert (part is None) == is_lost, name


def test_a_package_that_is_gone(tmp_path: Path) -> None:
    made = make(tmp_path / "runs", "a")
    shutil.rmtree(made.path)
    run = read_run(made.path)
    assert run.summary.state == "damaged" and run.unreadable and run.settings is None
    with pytest.raises(NotFound):
        require_readable([run])
    require_readable([run, read_run(make(tmp_path / "runs", "b").path)])


def test_a_package_of_a_newer_roost(tmp_path: Path) -> None:
    made = make(tmp_path / "runs", "a")
    (made.path / "request.json").write_text(json.dumps({**made.request, "format": 2}))
    run = read_run(made.path)
    assert run.settings is not None and ["newer roost" in one for one in run.unreadable] == [True]


def test_a_package_of_dlnests_own_programs(tmp_path: Path) -> None:
    folder = tmp_path / "Saves" / "old"
    (folder / "Checkpoints").mkdir(parents=True)
    (folder / "args.json").write_text('{"runner_name": "R", "epochs": 3}')
    (folder / "_package.json").write_text('{"ckpt_slow": [], "ckpt_consistent": [], "prefix": "state_"}')
    run = read_run(folder)
    assert run.summary.state == "foreign" and run.flat_settings["epochs"] == 3
    assert run.code is None and "DLNest" in run.unreadable[0]


def test_a_new_and_a_running_one(tmp_path: Path) -> None:
    run = read_run(package(tmp_path / "runs", "new", state="new").path)
    assert run.summary.state == "new" and run.unreadable == [] and run.environment is None
    made = package(tmp_path / "runs", "live", state="stopped")
    session(made, "running")
    assert read_run(made.path).summary.state == "running"


def test_a_package_of_dlnests_contract(tmp_path: Path) -> None:
    config = dlnest_project(tmp_path, epochs=3)
    made = prepare_training(layers.load(config)).create("one")
    other = prepare_training(layers.load(config, overrides=["epochs=4"])).create("two")
    runs = [read_run(made.path), read_run(other.path)]
    assert [run.kind for run in runs] == [PackageKind.DLNEST] * 2 and runs[0].unreadable == []
    assert [(one.name, one.values) for one in compare_settings(runs)] == [("epochs", [3, 4])]


def test_where_a_setting_was_set_is_unknown_where_the_file_is_strange(tmp_path: Path) -> None:
    made = make(tmp_path / "runs", "a")
    for value, expected in (('"config.yaml:3"', "config.yaml:3"), ('"\\ud800"', "\\ud800"), ("[3]", None)):
        (made.path / "provenance.json").write_text(f'{{"max_epochs": {value}}}')
        assert read_run(made.path).origin("max_epochs") == expected
