from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.project.dlnest.training_loop import TrainingLoop
from tests.project.dlnest.loops import compare, fingerprint, loop, package, run, stopping


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> PackageFolder:
    """The uninterrupted run."""
    made = package(tmp_path_factory.mktemp("whole"))
    assert run(made) == "finished"
    return made


def test_trains_to_the_end(whole: PackageFolder) -> None:
    found = fingerprint(whole)
    assert (found["step"], found["epoch"]) == (43, 4), "one batch was skipped"
    assert found["best"]["best"] > 0.5
    assert found["inexact"] == []
    assert [one.id for one in checkpoint.read_manifests(whole.checkpoints)] == [0, 1, 2, 3]


@pytest.mark.parametrize("step", [1, 10, 11, 12, 30])
def test_a_stop_at_a_step_is_continued_exactly(step: int, whole: PackageFolder, tmp_path: Path) -> None:
    made = package(tmp_path)
    assert run(made, stopping("runOneStep", step)) == "enough"
    assert checkpoint.read_manifests(made.checkpoints)[-1].step == step
    assert run(made) == "finished"
    compare(fingerprint(made), fingerprint(whole))
