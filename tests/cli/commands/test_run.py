"""`roost run`, what it answers without running anything."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.cli.programs import roost
from tests.operations.packages import project


def test_the_config_comes_first_or_with_c(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    for arguments in ([config, "seed=3"], ["-c", config, "seed=3"], ["seed=3", "-c", config]):
        said = roost("run", *arguments, "--print-config", "--json")
        assert json.loads(said.stdout)["seed"] == 3, said.stderr


def test_overrides_of_all_kinds(tmp_path: Path) -> None:
    said = roost("run", project(tmp_path / "p"), "~model.features", "+model.size=-1", "--print-config")
    assert yaml.safe_load(said.stdout)["model"] == {"size": -1}


def test_prints_and_explains_but_makes_nothing(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    (tmp_path / "tune.yaml").write_text("max_epochs: 4\n")
    said = roost("run", config, "-f", tmp_path / "tune.yaml", "max_epochs=5", "--explain", "max_epochs")
    head, values, *layers = said.stdout.splitlines()
    assert said.returncode == 0 and head.startswith("max_epochs: ")
    assert " >= 1" in values
    assert [line.split()[-1] for line in layers] == ["10", "4", "5"]
    assert not (tmp_path / "p" / "runs").exists()


def test_json_is_for_what_it_prints(tmp_path: Path) -> None:
    said = roost("run", project(tmp_path / "p"), "--json")
    assert said.returncode == 2 and "--explain" in said.stderr
