"""Exports of weights by the real program: beside a training, and killed in the middle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from roost.base.system import process_identity
from roost.lab.sessions.session_control import request_stop
from roost.operations.lifecycle.run import RunRequest, run
from roost.package import sessions
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from tests.cli.programs import ROOST, roost
from tests.operations.packages import project
from tests.project.trained import trained
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper")


@pytest.mark.soak
def test_beside_a_training_that_goes_on(tmp_path: Path) -> None:
    """Which saves as often as it can, and removes what is being read."""
    config = project(tmp_path / "project", max_epochs="1000000", save_root="../runs", threads="1")
    started = run(RunRequest(config=config, device="cpu", overrides=["checkpoint.fast=3"]))
    assert started.process is not None and started.running is not None
    package = PackageFolder.open(started.package)
    try:
        wait_for(lambda: len(checkpoint.ids(package.checkpoints)) > 2)
        for words in ([], ["--average", "last:3"]):
            said = roost("export", package.path, "--weights", tmp_path / "net.pt", "--overwrite", *words)
            assert said.returncode == 0, said.stdout + said.stderr
            assert all(
                one.isfinite().all() for one in torch.load(tmp_path / "net.pt", weights_only=True).values()
            )
        assert package.state == "running"
    finally:
        request_stop(started.running.session())
        assert started.process.wait(100) == 75, package.output.read_text()
    assert not list(package.checkpoints.glob("*.corrupt*"))


def test_killed_in_the_middle_it_leaves_nothing_half(tmp_path: Path) -> None:
    package = trained(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    arguments = [*ROOST, "export", str(package.path), "--weights", str(out / "net.pt")]
    program = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: list(out.glob(".roost-unfinished-*/session.json")))
    (place,) = out.iterdir()
    record = sessions.load_json(place / "session.json")
    program.kill()
    program.wait(100)
    assert record is not None
    who = record["pid"], record["start_ticks"], record["boot_id"]
    wait_for(lambda: not process_identity.is_alive(*who))
    assert not (out / "net.pt").exists()
    said = roost("export", package.path, "--weights", out / "net.pt")
    assert said.returncode == 0, said.stderr
    assert [path.name for path in out.iterdir()] == ["net.pt"], "what was left is swept"
