"""Scripts on packages of DLNest's contract."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.analysis.project_analysis import ProjectAnalysis
from roost.package.package import PackageFolder
from roost.project.dlnest import import_names
from tests.project.dlnest import loops

ENDS = """
    def AAll(self):
        with open("ended", "a") as file:
            file.write("1")
"""


@pytest.fixture
def package(tmp_path: Path) -> PackageFolder:
    made = loops.package(tmp_path, epochs=1)
    assert loops.run(made) == "finished"
    import_names.uninstall()  # a training's worker keeps them
    life_cycle = made.path / "LifeCycle.py"
    life_cycle.write_text(life_cycle.read_text() + ENDS)
    return made


def test_the_attributes_of_self(package: PackageFolder) -> None:
    def look(self: Any) -> dict[str, Any]:
        assert isinstance(self, ProjectAnalysis)
        assert self.model is self.runner and self.dataset.getArgs() is self.args
        assert self.package.path == package.path and self.checkpoint is not None
        assert self.runner.model.training, "the mode is the project's"
        self.save("note", "hello")
        import DLNest.Common.RunnerBase as base

        assert isinstance(self.runner, base.RunnerBase)
        return {"epochs": self.args["epochs"], "values": len(self.log["loss"]), "id": self.checkpoint.id}

    assert roost.analyze(package.path, look, device="cpu") == {"epochs": 1, "values": 11, "id": 0}
    place = package.path / "analysis" / "1"
    assert (place / "note.txt").read_text() == "hello"
    assert json.loads((place / "result.json").read_text())["checkpoint"]["step"] == 11
    assert (package.path / "ended").read_text() == "1"
    assert not any(name.partition(".")[0] == "DLNest" for name in sys.modules)


def test_the_end_follows_a_failed_script_too(package: PackageFolder) -> None:
    with pytest.raises(ZeroDivisionError):
        roost.analyze(package.path, lambda self: 1 / 0, device="cpu", untrained=True)
    assert (package.path / "ended").read_text() == "1"
    result = json.loads((package.path / "analysis" / "1" / "result.json").read_text())
    assert result["checkpoint"] is None and result["error"]["type"] == "ZeroDivisionError"
