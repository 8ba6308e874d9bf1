from __future__ import annotations

from pathlib import Path

from tests.project.dlnest.projects import load, package


def test_builds_a_project(tmp_path: Path) -> None:
    project = load(package(tmp_path))
    assert project.build()
    assert project.info == {"classes": 2}
    assert project.log == {"loss": [], "acc": []}
    assert len(project.train_loader) == 4
    assert project.life_cycle.runner is project.life_cycle.model is project.runner
    assert project.args["dataset_config"]["root"] == "${HOME}/data"
    assert project.args["root_file_path"] == str(project.package.path)
