"""Where a setting was set."""

from __future__ import annotations

from pathlib import Path

from roost.config import layers
from roost.package.package import PackageFolder
from roost.package.package_draft import prepare_training
from roost.package.setting_locations import provenance_locations, setting_locations
from tests.dlnest_project import dlnest_project

PROVENANCE = {
    "width": "config.yaml:3",
    "data.batch_size": "config.yaml:7",
    "hooks": "config.yaml:9",
    "seed": "default",
}


def test_the_file_or_the_newest_session(tmp_path: Path) -> None:
    package = PackageFolder.create(tmp_path, name="run", values={"width": 1}, provenance=PROVENANCE)
    package.new_session({"overrides": []})
    where = setting_locations(package)
    assert where("width") == "config.yaml:3"
    assert where("hooks.0") == "config.yaml:9", "a list has one place"
    assert (where("seed"), where("nothing"), where("dat")) == (None, None, None)
    assert where("data") == "config.yaml:7", "a section has that of its first key"
    package.new_session({"overrides": ["width=4", "+mine.new=3"]})
    package.new_session({"overrides": ["width = 5", "~seed", "data={batch_size: 3}"]})
    where = setting_locations(package)
    assert where("width") == where("data.batch_size") == where("seed") == "command line of session 3"
    assert where("mine.new") == "command line of session 2"
    assert where("widths") is None


def test_a_session_that_is_about_to_begin(tmp_path: Path) -> None:
    package = PackageFolder.create(tmp_path, name="run", values={}, provenance=PROVENANCE)
    package.new_session({"overrides": ["width=4"]})
    where = setting_locations(package, overrides=["~hooks", "data={batch_size: 3}"])
    assert where("hooks.0") == where("data.batch_size") == "command line"
    assert where("width") == "command line of session 1"


def test_without_a_package() -> None:
    where = provenance_locations(PROVENANCE)
    assert (where("hooks.0.every"), where("seed"), where("")) == ("config.yaml:9", None, None)


def test_roosts_own_settings_have_one_name_in_an_override(tmp_path: Path) -> None:
    made = PackageFolder.create(tmp_path, values={"seed": 1})
    assert setting_locations(made, overrides=["roost.seed=2"])("seed") == "command line"
    config = dlnest_project(tmp_path / "p")
    other = prepare_training(layers.load(config)).create("one")
    where = setting_locations(other, overrides=["roost.seed=2"])
    assert (where("roost.seed"), where("seed")) == ("command line", None)
