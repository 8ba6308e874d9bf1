"""A project whose configs lie deeper than its code, `configs/NAME.json`, as in CornerNet-Lite's train.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from roost.base.config_files import read_config_file
from roost.operations.lifecycle.new_project import new_project
from roost.package.package import PackageFolder
from tests.cli.programs import roost


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A template with its config as JSON in a folder of its own."""
    folder = tmp_path / "detector"
    new_project(folder, template="clean")
    values = read_config_file(folder / "config.yaml").values
    values |= {"max_steps": 40, "checkpoint": {"every": 20, "fast": 2}, "num_words": "${project}"}
    (folder / "configs").mkdir()
    (folder / "configs" / "CornerNet_Saccade.json").write_text(json.dumps(values))
    (folder / "config.yaml").unlink()
    return folder


def note_of(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("project: ")]


def test_the_whole_way_of_a_run(project: Path, tmp_path: Path) -> None:
    config = "configs/CornerNet_Saccade.json"
    checked = roost("check", config, "-CPU", cwd=project)
    assert checked.returncode == 0 and len(note_of(checked.stdout + checked.stderr)) == 1, checked.stderr
    ran = roost("run", config, "-CPU", "--name", "one", cwd=project)
    assert ran.returncode == 0 and len(note_of(ran.stderr)) == 1, ran.stderr
    made = PackageFolder.open(project / "runs" / "one")
    assert made.project == project and (made.path / config).is_file() and not made.changed_files()
    assert made.path.joinpath("Model", "Runner.py").is_file()
    again = roost("run", config, "-CPU", "--name", "one", cwd=project)
    assert again.returncode == 0 and "finished" in again.stderr, again.stderr
    shown = roost("show", "--data", config, cwd=project)
    assert shown.returncode == 0 and len(note_of(shown.stdout + shown.stderr)) == 1, shown.stderr
    moved = tmp_path / "elsewhere"
    shutil.move(project, moved)
    done = roost("continue", "runs/one", "max_steps=60", "-CPU", "--project", moved, cwd=moved)
    assert done.returncode == 0, done.stderr
    made = PackageFolder.open(moved / "runs" / "one")
    assert made.records().rows[-1]["step"] == 60 and made.project == moved


def test_from_another_folder_and_with_a_named_project(project: Path, tmp_path: Path) -> None:
    config = tmp_path / "mine.json"
    shutil.move(project / "configs" / "CornerNet_Saccade.json", config)
    refused = roost("run", config, "-CPU", cwd=tmp_path)
    assert refused.returncode == 4 and f"looked in {tmp_path}" in refused.stderr, refused.stderr
    ran = roost("run", config, "-CPU", "--project", "detector", cwd=tmp_path)
    assert ran.returncode == 0 and not note_of(ran.stderr), ran.stderr
    (made,) = (project / "runs").iterdir()
    assert PackageFolder.open(made).project == project
