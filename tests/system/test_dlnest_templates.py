"""The walk of DLNest with its own project: new, run, a kill, continue, analyze."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from roost.package import live_progress
from roost.package.package import PackageFolder
from tests.cli.programs import ROOST
from tests.cli.programs import roost as run_roost
from tests.project.dlnest import loops
from tests.waiting import wait_for

pytestmark = pytest.mark.timeout(300)

SETTINGS = ("dataset_config.mirrors=[]", "roost.threads=1", "roost.checkpoint.every=10")
"""Without a download: the digits of scikit-learn take the place of MNIST."""


def test_mnist_is_killed_continued_and_analysed(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"

    def type(*words: object) -> str:
        said = run_roost(*words, cwd=folder if folder.exists() else tmp_path, OMP_NUM_THREADS="1")
        assert said.returncode == 0, said.stdout + said.stderr
        return said.stdout

    def package(name: str) -> PackageFolder:
        return PackageFolder.open(folder / "Saves" / name)

    type("new", folder, "-t", "dlnest-mnist")
    words = ["run", "-c", "root_config.json", "-CPU", *SETTINGS, "--name"]
    assert "the digits of scikit-learn take its place" in type(*words, "whole")  # the other run finds them
    data = (folder / "MNIST" / "digits.npz").read_bytes()
    process = subprocess.Popen(
        [*ROOST, *words, "killed"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    board = folder / "Saves" / "killed" / "progress"
    wait_for(lambda: (look := live_progress.read(board)) is not None and look.step >= 55)
    record = package("killed").sessions()[0].record
    assert record is not None
    os.kill(record["worker_pid"], signal.SIGKILL)
    assert process.wait(60) != 0 and package("killed").state == "crashed"
    assert package("killed").store().lineage()[-1].step % 24, "not within an epoch"
    type("continue", "Saves/killed")
    loops.compare(loops.fingerprint(package("killed")), loops.fingerprint(package("whole")))
    accuracy = package("whole").records().last()["valid/acc"]
    assert accuracy > 0.9
    assert f"  all       297    {accuracy:.4f}\n" in type("analyze", "Saves/whole", "-s", "getAcc", "-CPU")
    assert "105,866 parameters" in type("analyze", "Saves/whole", "-s", "showModel", "-CPU")
    assert (folder / "MNIST" / "digits.npz").read_bytes() == data
    assert "\nready: " in type("check", "root_config.json", "-CPU", *SETTINGS)
    assert (package("killed").path / "MNIST").is_symlink()  # linked, not copied


def test_mnist_itself_is_read_where_it_is(tmp_path: Path) -> None:
    """The four files in the folder of the data, as a download leaves them."""
    folder = tmp_path / "mnist"
    assert run_roost("new", folder, "-t", "dlnest-mnist", cwd=tmp_path).returncode == 0
    chance = np.random.default_rng(0)
    (folder / "MNIST").mkdir()
    for part, number in (("train", 130), ("t10k", 40)):
        pictures = chance.integers(0, 256, (number, 28, 28), np.uint8).tobytes()
        labels = chance.integers(0, 10, number, np.uint8).tobytes()
        for kind, head, data in (("images-idx3", 16, pictures), ("labels-idx1", 8, labels)):
            file = folder / "MNIST" / f"{part}-{kind}-ubyte.gz"
            file.write_bytes(gzip.compress(bytes(head) + data))
    said = run_roost("run", "-c", "root_config.json", "-CPU", "--name", "own", *SETTINGS, cwd=folder)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "scikit-learn" not in said.stdout
    newest = PackageFolder.open(folder / "Saves" / "own").store().lineage()[-1]
    assert (newest.epoch, newest.step) == (4, 12)  # 130 pictures, 64 in a batch
