"""`roost tune`, as a person types it, and the run with its tuning file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.package.checkpoints import checkpoint
from tests.cli.programs import roost
from tests.warming import temporary_folder
from tests.worker.tuning.toys import DATASET, RUNNER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper")

CONFIG = """
runner: Runner.py:Runner
dataset: Dataset.py:Dataset
max_steps: 10
threads: 1
sample_seconds: 0.02
data: {batch_size: 4, num_workers: 1}
optimizers: {main: {class: torch.optim.SGD, lr: 0.1}}
checkpoint: {every: "5"}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where folders for a while go."""
    with temporary_folder(tmp_path_factory.mktemp("place")) as made:
        yield made


@pytest.fixture
def config(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Runner.py").write_text(RUNNER)
    (folder / "Dataset.py").write_text(DATASET)
    (folder / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(folder)
    return folder / "config.yaml"


def test_a_tuned_run_has_the_same_bits(config: Path, place: Path) -> None:
    said = roost("tune", "config.yaml", "--what", "workers", "--seconds", "10", "-CPU")
    assert said.returncode == 0, said.stdout + said.stderr
    assert "data.num_workers: " in said.stdout and "tuning file: tuned.yaml" in said.stdout
    assert "workers 1: " in said.stderr
    made = {path.name for path in config.parent.iterdir()}
    assert made == {"Dataset.py", "Runner.py", "config.yaml", "tuned.yaml"}
    assert list(place.iterdir()) == []
    fast = ["sample_seconds=0"]  # whatever the workers, the batches are the same
    digests = []
    for name, tuning in (("plain", []), ("tuned", ["-f", "tuned.yaml"])):
        done = roost("run", "config.yaml", *tuning, *fast, "--name", name, "-CPU")
        assert done.returncode == 0, done.stdout + done.stderr
        newest = checkpoint.read_manifests(config.parent / "runs" / name / "Checkpoints")[-1]
        digests.append({file: entry["sha256"] for file, entry in newest.files.items() if "model" in file})
    assert digests[0] == digests[1] and digests[0]
    again = roost("tune", "config.yaml", *fast, "--what", "lr", "--json", "-CPU")  # replaces its own file
    assert again.returncode == 0, again.stdout + again.stderr
    found = json.loads(again.stdout)
    assert found["state"] == "succeeded" and found["report"]["range_test"]
    assert (config.parent / "tuned.lr.png").read_bytes()[1:4] == b"PNG"


def test_a_failure_of_the_project_is_its_own(config: Path, place: Path) -> None:
    runner = config.parent / "Runner.py"
    runner.write_text(runner.read_text().replace("x, y = batch", "x, y, z = batch"))
    said = roost("tune", "config.yaml", "-CPU", "--what", "workers")
    assert said.returncode == 1 and said.stdout == ""
    assert "not enough values to unpack" in said.stderr and "Runner.py:" in said.stderr
    assert said.stderr.splitlines()[-1].startswith("failed at first step")
    assert not (config.parent / "tuned.yaml").exists() and list(place.iterdir()) == []


def test_a_misspelt_name(config: Path) -> None:
    said = roost("tune", "config.yaml", "--what", "worker")
    assert said.returncode == 2 and "'workers'" in said.stderr
