from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from roost.base.errors import ConfigError, NotFound
from roost.base.system import process_identity
from roost.operations.lifecycle.check import CheckRequest, check
from roost.operations.sessions.running_session import follow
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.sessions import Session
from tests.dlnest_project import dlnest_project
from tests.messages import Messages
from tests.operations.packages import project
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the check works."""
    made = tmp_path / "tmp"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


def test_the_outcome(place: Path, tmp_path: Path, messages: Messages) -> None:
    config = project(tmp_path / "project")
    (config.parent / "data.bin").touch()
    os.truncate(config.parent / "data.bin", 20 * 2**20)
    with check(CheckRequest(config=config, device="cpu", overrides=["max_epochs=3", "devices=2"])) as started:
        linked, ranks = started.notes
        assert "data.bin (" in linked and "10 MB" in linked and "2 ranks (ddp)" in ranks
        for note in started.notes:
            messages.check(note)
        assert started.running.package.parent.parent == place and started.root == config.parent / "runs"
        *_, session = follow(started.running)
        assert isinstance(session, Session) and started.process.wait(100) == 0
        found = started.outcome(session)
    assert (found.is_ready, found.state, found.exit_code, found.failed) == (True, "succeeded", 0, None)
    assert found.estimate is not None and found.estimate.total_steps == 96 and found.estimate.fits
    assert found.warnings == [] and found.findings.measured["device"] == "cpu"
    assert list(place.iterdir()) == [] and not (config.parent / "runs").exists()


def test_a_project_of_dlnest_is_copied_as_such(place: Path, tmp_path: Path) -> None:
    config = dlnest_project(tmp_path / "project", root_file_path="/gone", roost={"devices": 2})
    with check(CheckRequest(config=config, device="cpu", overrides=["epochs=2"])) as started:
        stale, ranks = started.notes
        assert "/gone" in stale and "2 ranks (ddp)" in ranks
        made = PackageFolder.open(started.running.package)
        assert PackageKind.of(made.request) is PackageKind.DLNEST and made.args["epochs"] == 2
        assert (made.path / "Model/Runner.py").is_file() and started.root == tmp_path / "project/Saves"
    assert list(place.iterdir()) == [] and not (tmp_path / "project/Saves").exists()


def test_it_ends_with_its_block(place: Path, tmp_path: Path) -> None:
    config = project(tmp_path / "project")
    with check(CheckRequest(config=config, device="cpu")) as started:
        wait_for(lambda: started.running.session().state == "running")
        record = started.running.session().record or {}
        ticks = process_identity.start_ticks(record["pid"])
        assert ticks is not None
    assert not process_identity.is_alive(record["pid"], ticks, process_identity.boot_id())
    assert started.process.returncode == 130 and list(place.iterdir()) == []


def test_what_a_run_would_refuse_leaves_nothing(place: Path, tmp_path: Path) -> None:
    config = project(tmp_path / "project")
    for request, error in (
        (CheckRequest(config=tmp_path / "nowhere.yaml"), NotFound),
        (CheckRequest(config=config, overrides=["max_epochs=x"]), ConfigError),
        (CheckRequest(config=config, overrides=["runner=Model/No.py:Runner"]), ConfigError),
        (CheckRequest(config=config, overrides=["save_root=/dev/null/x"]), OSError),
        (CheckRequest(config=config, overrides=["data.stage=absent.zip"]), NotFound),
        (CheckRequest(config=config, overrides=["data.stage=nowhere://a/b.zip"]), ConfigError),
        (CheckRequest(config=config, overrides=["require={memory: much}"]), ConfigError),
    ):
        with pytest.raises(error), check(request):
            pytest.fail("it must not start")
    assert list(place.iterdir()) == []
