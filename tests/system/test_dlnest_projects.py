"""Projects as users of DLNest have them, unchanged: trained, killed, continued, moved, branched."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import exact
import pytest

from roost.operations.lifecycle.continue_ import ContinueRequest, continue_
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.sessions.session_request import StartedSession
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from tests.cli.programs import roost as run_roost
from tests.project.dlnest import loops

pytestmark = pytest.mark.timeout(300)

GAN = "dlnest_gan_project"
"""In the style of 0.3.2."""
OLDER = "dlnest_older_project"
"""In the style of 0.3.0."""
SLOW = "step_seconds=0.02"


def project(folder: Path, name: str) -> Path:
    """A copy of a project; gives its config."""
    shutil.copytree(Path(__file__).parent / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder / name / "root_config.json"


def start(config: Path, *overrides: str, name: str | None = None) -> StartedSession:
    return run(RunRequest(config=config, overrides=list(overrides), device="cpu", name=name))


def trained(config: Path, *overrides: str, name: str | None = None) -> PackageFolder:
    """The package of a run that has ended."""
    started = start(config, *overrides, name=name)
    assert exact.wait(started) == 0, PackageFolder.open(started.package).output.read_text()
    return PackageFolder.open(started.package)


def parts(package: PackageFolder) -> dict[str, Any]:
    """What the newest checkpoint holds of the project."""
    newest = package.store().lineage()[-1]
    _, states = checkpoint.read(checkpoint.checkpoint_folder(package.checkpoints, newest.id))
    found: dict[str, Any] = states["dlnest"]
    return found


@pytest.mark.parametrize("name", [GAN, OLDER])
def test_killed_within_an_epoch_it_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    config = project(tmp_path, name)
    whole = trained(config, SLOW, name="whole")
    started = start(config, SLOW, "roost.checkpoint.every=4", name="cut")
    assert exact.kill_when(started, exact.at_phase("training", 8 if name == GAN else 14))
    started = exact.go_on(started.package, [])
    assert exact.wait(started) == 0, PackageFolder.open(started.package).output.read_text()
    cut = PackageFolder.open(started.package)
    loops.compare(loops.fingerprint(cut), loops.fingerprint(whole))
    assert cut.derived["inexact"] == []
    state = parts(cut)
    if name == GAN:
        assert state["runner"]["scheduler"]["scheduler"]["last_epoch"] == 2  # AOneEpoch follows the save
        assert state["life_cycle"]["best"] == min(state["log_dict"]["valid"]["distance"])
        assert state["life_cycle"]["counted"] == 13
        rows = cut.records()
        assert rows.last()["valid/valid/distance"] == pytest.approx(
            float(state["log_dict"]["valid"]["distance"][-1])
        )
    else:
        assert state["runner"]["scheduler"]["scheduler"]["last_epoch"] == 2
        assert state["life_cycle"]["best"] == max(state["log_dict"]["acc"])
        assert state["log_dict"]["seen"] == 120
    output = cut.output.read_text()
    assert "epoch 0" in output and "epoch 2" in output


def test_two_ranks_train_it(tmp_path: Path) -> None:
    config = project(tmp_path, GAN)
    words = ["run", "-c", config, "-DDP", "-CPU", "--devices", "2", "--name", "two", "epochs=2"]
    said = run_roost(*words, cwd=tmp_path, OMP_NUM_THREADS="1")
    assert said.returncode == 0, said.stdout + said.stderr
    package = PackageFolder.open(config.parent / "Saves" / "two")
    newest = package.store().lineage()[-1]
    assert (newest.ranks, newest.epoch, newest.step) == (2, 2, 6)  # 24 points for each, 8 in a batch


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> PackageFolder:
    """A finished run of the older project, with a checkpoint of each epoch; tests take copies of it."""
    config = project(tmp_path_factory.mktemp("older"), OLDER)
    return trained(config, "checkpoint_args.max_ckpt_in_fast_track=3", name="done")


def copied(package: PackageFolder, folder: Path) -> PackageFolder:
    shutil.copytree(package.path, folder / "moved")
    return PackageFolder.open(folder / "moved")


def test_a_package_that_was_moved_goes_on(tmp_path: Path, older: PackageFolder) -> None:
    """Its project and the absolute paths that it was made with are not there."""
    moved = copied(older, tmp_path)
    assert exact.wait(exact.go_on(moved.path, [])) == 0, moved.output.read_text()
    assert [one.epoch for one in moved.store().lineage()][-1] == 4
    assert parts(moved)["life_cycle"]["best"] >= parts(older)["life_cycle"]["best"]


def test_a_truncated_last_checkpoint_falls_back(tmp_path: Path, older: PackageFolder) -> None:
    moved = copied(older, tmp_path)
    newest = checkpoint.checkpoint_folder(moved.checkpoints, moved.store().lineage()[-1].id)
    largest = max(
        (path for path in newest.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    os.truncate(largest, largest.stat().st_size // 2)
    started = exact.go_on(moved.path, [])
    assert exact.wait(started) == 0, moved.output.read_text()
    begun = PackageFolder.open(moved.path).records().starts[-1]
    assert begun == (2, 20)  # the end of the second of three epochs of ten steps
    assert f"{newest.name}" in "".join(started.notes) + moved.output.read_text()


def test_a_branch_is_continued_not_what_it_was_taken_from(tmp_path: Path, older: PackageFolder) -> None:
    moved = copied(older, tmp_path)
    first = moved.store().lineage()[0]
    request = ContinueRequest(package=moved.path, checkpoint=first.id, overrides=["epochs=2"], force=True)
    started = continue_(request)
    assert exact.wait(started) == 0, moved.output.read_text()
    started = exact.go_on(moved.path, [])
    assert exact.wait(started) == 0, moved.output.read_text()
    opened = PackageFolder.open(moved.path)
    assert opened.records().starts[1:] == [(2, 10), (3, 20)]


def test_one_description_twice_keeps_both(tmp_path: Path) -> None:
    config = project(tmp_path, OLDER)
    words = ["run", "-c", config, "-CPU", "-d", "twice", "-sd", "epochs=1"]
    first, second = (run_roost(*words, cwd=tmp_path, OMP_NUM_THREADS="1") for _ in range(2))
    assert first.returncode == 0, first.stderr
    saves = config.parent / "Saves"
    assert second.returncode in (0, 2, 5) and "twice" in second.stdout + second.stderr
    assert PackageFolder.open(saves / "twice").state == "succeeded"
    assert len(PackageFolder.open(saves / "twice").sessions()) == 1


def test_a_run_that_fails_is_listed_as_one_that_failed(tmp_path: Path) -> None:
    config = project(tmp_path, OLDER)
    said = run_roost("run", "-c", config, "-CPU", "--name", "bad", "epochs=none", cwd=tmp_path)
    assert said.returncode == 1 and "Training.py" in said.stdout + said.stderr
    listed = json.loads(run_roost("ls", config.parent / "Saves", "--json", cwd=tmp_path).stdout)
    assert [one["state"] for one in listed] == ["failed"]


def test_what_is_missing_is_said_at_once(tmp_path: Path) -> None:
    config = project(tmp_path, OLDER)
    said = run_roost("run", "-c", tmp_path / "none.json", "-CPU", cwd=tmp_path)
    assert said.returncode != 0 and "none.json" in said.stderr
    (config.parent / "net" / "parts.py").unlink()
    said = run_roost("run", "-c", config, "-CPU", cwd=tmp_path)
    assert said.returncode == 4 and "other_file_paths.0" in said.stderr and "parts.py" in said.stderr
    assert not (config.parent / "Saves").exists()


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", [GAN, OLDER])
def test_kills_at_random(tmp_path: Path, name: str) -> None:
    chance, kills, runs = random.Random(0), 0, 0
    config = project(tmp_path, name)
    expected = loops.fingerprint(trained(config, SLOW, name="whole"))
    while kills < 50:
        runs += 1
        started = start(config, SLOW, "roost.checkpoint.every=4", name=f"cut{runs}")
        while exact.kill_when(started, exact.random_moment(chance, last_step=30)):
            kills += 1
            started = exact.go_on(started.package, [])
        assert exact.wait(started) == 0
        loops.compare(loops.fingerprint(PackageFolder.open(started.package)), expected)
        print(f"{name}: {runs} runs, {kills} kills, all bit-identical", flush=True)


def test_its_script_analyses_it(tmp_path: Path) -> None:
    """The script of the project's folder, which the package is within."""
    config = project(tmp_path, GAN)
    package = trained(config, "epochs=1")
    said = run_roost("analyze", package.path, "-s", "distance", "-CPU", cwd=tmp_path)
    assert said.returncode == 0, said.stdout + said.stderr
    last = float(parts(package)["log_dict"]["valid"]["distance"][-1])
    assert f"distance {last:.6f} of 3" in said.stdout
