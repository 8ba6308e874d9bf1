"""Runs whose data are in an archive, as a person types them."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.project.staging import staging_folder
from tests.cli.programs import ROOST, roost
from tests.mirror import Mirror
from tests.project.staging.archives import pack
from tests.waiting import wait_for

DATASET = """
import os, pathlib
import torch
from torch.utils.data import TensorDataset
import roost

class Dataset(roost.Dataset):
    def build(self):
        folder = pathlib.Path(self.args["root"])
        assert folder.is_dir(), folder
        data = torch.frombuffer(bytearray((folder / "values.bin").read_bytes()), dtype=torch.float32)
        print("read from", folder, flush=True)
        data = TensorDataset(data.reshape(-1, 4), data.reshape(-1, 4).sum(1))
        return roost.Data(train=data)
"""
RUNNER = """
from torch import nn
import roost

class Runner(roost.Runner):
    def build(self):
        self.net = nn.Linear(4, 1)

    def loss(self, batch):
        x, y = batch
        return (self.net(x).squeeze(1) - y).square().mean()
"""
CONFIG = """
runner: Runner.py:Runner
dataset: Dataset.py:Dataset
max_steps: 4
root: ${staged}/train
data:
  batch_size: 4
  num_workers: 0
  stage: {archive: ARCHIVE}
optimizers: {main: {class: torch.optim.SGD, lr: 0.01}}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose data are in data.zip."""
    monkeypatch.setenv("ROOST_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "project"
    folder.mkdir()
    pack(tmp_path / "data.zip", {"train/values.bin": struct.pack("128f", *(one / 128 for one in range(128)))})
    (folder / "Dataset.py").write_text(DATASET)
    (folder / "Runner.py").write_text(RUNNER)
    (folder / "config.yaml").write_text(CONFIG.replace("ARCHIVE", "../data.zip"))
    return folder / "config.yaml"


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with Mirror({}) as made:
        yield made


def test_a_run_from_an_archive(config: Path, tmp_path: Path) -> None:
    folder = config.parent
    ran = roost("run", config, "-CPU", "--name", "one", "--devices", 2, cwd=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    run = folder / "runs" / "one"
    outputs = "".join(one.read_text() for one in run.glob("_output*"))
    assert outputs.count("data.zip: staged in") == 1, "one of the ranks unpacks, whichever comes first"
    assert json.loads((run / "args.json").read_bytes())["root"] == "${staged}/train"
    recorded = json.loads((run / "staged.json").read_bytes())["staged"]["data"]
    assert f"read from {staging_folder.staging_folder()}/{recorded['sha256']}/files/train" in ran.stdout
    assert not list(run.rglob("values.bin"))
    pack(tmp_path / "data.zip", {"train/values.bin": bytes(512)})
    again = roost("continue", run, "max_steps=8", "-CPU", cwd=folder, ROOST_SCRATCH=str(tmp_path / "new"))
    assert again.returncode == 5 and "the archive has changed since it was first staged" in again.stdout


def test_an_archive_that_is_missing_ends_it_before_a_package_is_made(config: Path, tmp_path: Path) -> None:
    for command in ("run", "check"):
        for archive, code, what in (
            ("../absent.zip", 3, "there is no such archive"),
            (str(tmp_path), 4, "is a folder, not an archive"),
            ("nowhere://bucket/data.zip", 4, "no library is known that reads nowhere://"),
        ):
            refused = roost(command, config, "-CPU", f"data.stage.archive={archive}", cwd=config.parent)
            assert refused.returncode == code and what in refused.stderr, refused.stdout + refused.stderr
            assert not (config.parent / "runs").exists()
    assert roost("run", config, "-CPU", "--name", "one", cwd=config.parent).returncode == 0
    (tmp_path / "data.zip").unlink()
    run = config.parent / "runs" / "one"
    kept = roost("continue", run, "max_steps=5", "-CPU", cwd=config.parent)
    assert kept.returncode == 0, "it is staged here: " + kept.stdout + kept.stderr
    for word in ("continue", "fork"):
        refused = roost(
            word, run, "max_steps=6", "-CPU", cwd=config.parent, ROOST_SCRATCH=str(tmp_path / "new")
        )
        assert refused.returncode == 3 and "there is no such archive" in refused.stderr
    assert len(list((config.parent / "runs").iterdir())) == 1 and not (run / "sessions" / "3.json").exists()


def test_a_check_unpacks_only_what_takes_seconds(config: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.tar"
    large.touch()
    os.truncate(large, 2 * 10**9)  # a file with a hole
    refused = roost("check", config, "-CPU", f"data.stage.archive={large}")
    assert refused.returncode == 5 and "add --stage" in refused.stdout + refused.stderr
    assert not staging_folder.staging_folder().exists()


def test_a_stop_while_an_archive_is_fetched(config: Path, tmp_path: Path, mirror: Mirror) -> None:
    mirror.files = {"data.zip": (tmp_path / "data.zip").read_bytes()}
    config.write_text(CONFIG.replace("ARCHIVE", mirror.url("hold") + "data.zip"))
    process = subprocess.Popen(
        [*ROOST, "run", str(config), "-CPU", "--name", "one"],
        cwd=config.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for(mirror.half_sent.is_set)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=100)[0]
    assert process.returncode == 75, said
    assert not list(staging_folder.staging_folder().glob("*/")), "nothing is left"


PROGRAM = """
import os, pathlib
folder = pathlib.Path(os.environ["ROOST_STAGED"])
print("read", len((folder / "train" / "values.bin").read_bytes()), "bytes from", folder, flush=True)
"""


def test_a_program_with_an_archive(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "main.py").write_text(PROGRAM)
    words = ("run", "--name", "one", "--stage", "../data.zip", "--", sys.executable, "main.py")
    ran = roost(*words, cwd=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "data.zip: staged in" in ran.stdout and "read 512 bytes from" in ran.stdout
    run = folder / "runs" / "one"
    assert json.loads((run / "staged.json").read_bytes())["staged"]["data"]["num_files"] == 1
    again = roost("continue", run, cwd=folder)
    assert again.returncode == 0 and "read 512 bytes" in again.stdout and "staged in" not in again.stdout
    pack(tmp_path / "data.zip", {"train/values.bin": b"other"})
    changed = roost("continue", run, cwd=folder, ROOST_SCRATCH=str(tmp_path / "new"))
    assert changed.returncode == 5 and "has changed since it was first staged" in changed.stdout
    other = f"../data.zip#sha256={'0' * 64}"
    wrong = roost("run", "--name", "two", "--stage", other, "--", sys.executable, "main.py", cwd=folder)
    assert wrong.returncode == 5 and f"not {'0' * 64}" in wrong.stdout and "#sha256=" in wrong.stdout
    absent = roost("run", "--stage", "absent.zip", "--", sys.executable, "main.py", cwd=folder)
    assert absent.returncode == 3 and "--stage: there is no such archive" in absent.stderr
    assert sorted(one.name for one in (folder / "runs").iterdir()) == ["one", "two"], "no package was made"
