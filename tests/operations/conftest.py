"""One real run that several tests look at."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roost.operations.lifecycle.run import RunRequest, run
from roost.package.package import PackageFolder
from tests.operations.packages import project


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package whose run has succeeded, and whose project was deleted as soon as it had started."""
    config = project(tmp_path_factory.mktemp("walk") / "project", max_epochs="2", save_root="../runs")
    request = RunRequest(config=config, description="first: walk", command=["roost", "run"])
    started = run(request)
    shutil.rmtree(config.parent)
    assert started.process is not None
    assert started.process.wait(100) == 0, (started.package / "_output.txt").read_text()
    return started.package


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> PackageFolder:
    """A copy of it, at another path."""
    shutil.copytree(finished_once, tmp_path / "runs" / "finished", symlinks=True)
    return PackageFolder.open(tmp_path / "runs" / "finished")
