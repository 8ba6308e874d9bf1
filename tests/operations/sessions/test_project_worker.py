from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from roost.base.system import process_identity
from roost.config import layers
from roost.operations.sessions.project_worker import worker_on_copy
from roost.package.kinds import TaskKind
from roost.package.package_draft import prepare_training
from tests.operations.packages import project
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the worker works."""
    made = tmp_path / "tmp"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


def test_it_ends_with_its_block(place: Path, tmp_path: Path) -> None:
    config = project(tmp_path / "project")
    plan = prepare_training(layers.load(config))
    with (
        pytest.raises(ValueError, match="x"),
        worker_on_copy(plan, TaskKind.DATA_REPORT, device="cpu", command=["roost"]) as started,
    ):
        assert started.running.package.parent.parent == place and started.running.package.name == "data"
        wait_for(lambda: started.running.session().state == "running")
        session = started.running.session()
        assert session.request["device"] == "cpu" and session.request["command"] == ["roost"]
        record = session.record or {}
        ticks = process_identity.start_ticks(record["pid"])
        assert ticks is not None
        raise ValueError("x")
    assert not process_identity.is_alive(record["pid"], ticks, process_identity.boot_id())
    assert list(place.iterdir()) == [] and not (config.parent / "runs").exists()
