"""`roost fork`: with the same settings the same bits, whatever comes between; with others what was asked."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import exact
import pytest

from roost.base.errors import ConfigError
from roost.operations.lifecycle.continue_ import ContinueRequest, continue_
from roost.operations.lifecycle.fork import ForkRequest, fork
from roost.operations.sessions.session_request import StartedSession
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from tests.cli.programs import roost
from tests.operations.packages import project

pytestmark = pytest.mark.soak  # minutes; CI has the modules' own tests

ALL = "checkpoint={every: 5, fast: 99, best: [{monitor: valid/loss, mode: min, top_k: 2}]}"
KINDS = ("gan", "plateau", "fp16", "skip")


def source_of(root: Path, kind: str, *more: str) -> PackageFolder:
    started = exact.start(root, [*exact.KINDS[kind], ALL, *more])
    assert exact.wait(started) == 0, (started.package / "_output.txt").read_text()
    return PackageFolder.open(started.package)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> PackageFolder:
    return source_of(tmp_path_factory.mktemp("source"), "cnn")


def same(new: Path, old: Path, *, but: str = "") -> None:
    """All but which checkpoints stand, and what is tested with the best of them: those of before the fork are
    the source's alone."""
    one, other = exact.fingerprint(new), exact.fingerprint(old)
    for of in (one, other):
        of.pop("best")
        of.pop(but, None)
        of["rows"] = [row for row in of["rows"] if not any(name.startswith("test/") for name in row)]
    assert one == other


def middle(source: PackageFolder) -> int:
    steps = [info.step for info in source.store().lineage()]
    return steps[len(steps) // 2]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits(tmp_path: Path, kind: str) -> None:
    made = source_of(tmp_path / "source", kind)
    started = fork(ForkRequest(package=made.path, step=middle(made), save_root=tmp_path / "forks"))
    assert exact.wait(started) == 0, (started.package / "_output.txt").read_text()
    same(started.package, made.path)


@pytest.mark.timeout(120)
def test_killed_and_continued(tmp_path: Path, source: PackageFolder) -> None:
    started = fork(ForkRequest(package=source.path, step=middle(source), save_root=tmp_path))
    assert exact.kill_when(started, exact.at_phase("training", middle(source) + 7))
    again = exact.go_on(started.package, [])
    assert exact.wait(again) == 0
    same(started.package, source.path)


@pytest.mark.timeout(120)
def test_killed_before_its_first_save(tmp_path: Path, source: PackageFolder) -> None:
    started = fork(ForkRequest(package=source.path, step=middle(source), save_root=tmp_path))
    assert exact.kill_when(started, exact.at_phase("training", middle(source)))
    moved = started.package.rename(tmp_path / "moved")
    assert exact.wait(exact.go_on(moved, [])) == 0
    same(moved, source.path)


@pytest.mark.timeout(120)
def test_a_fork_of_a_fork(tmp_path: Path, source: PackageFolder) -> None:
    first = fork(ForkRequest(package=source.path, step=middle(source), save_root=tmp_path, overrides=[ALL]))
    assert exact.wait(first) == 0
    later = PackageFolder.open(first.package).store().lineage()[3].step
    second = fork(ForkRequest(package=first.package, step=later))
    assert exact.wait(second) == 0
    same(second.package, source.path)


def rates(started: StartedSession) -> dict[int, float]:
    rows = PackageFolder.open(started.package).records().rows
    return {row["step"]: row["lr"] for row in rows if "lr" in row}


@pytest.mark.timeout(120)
def test_another_learning_rate_is_as_if_it_had_been_so(tmp_path: Path, source: PackageFolder) -> None:
    step = middle(source)
    asked: dict[str, Any] = {"package": source.path, "step": step, "save_root": tmp_path}
    started = fork(
        ForkRequest(**asked, overrides=["optimizers.main.lr=1e-3", "+optimizers.main.weight_decay=0"])
    )
    assert exact.kill_when(started, exact.at_phase("training", step)), "the change must survive this"
    assert exact.wait(exact.go_on(started.package, [])) == 0, (started.package / "_output.txt").read_text()
    fresh = exact.start(tmp_path, ["optimizers.main.lr=1e-3"])
    assert exact.wait(fresh) == 0
    before, new, whole = rates(StartedSession(source.path)), rates(started), rates(fresh)
    assert {s: lr for s, lr in new.items() if s <= step} == {s: lr for s, lr in before.items() if s <= step}
    assert {s: lr for s, lr in new.items() if s > step} == {s: lr for s, lr in whole.items() if s > step}
    newest = PackageFolder.open(started.package).store().lineage()[-1]
    path = checkpoint.checkpoint_folder(started.package / "Checkpoints", newest.id)
    (group,) = checkpoint.read(path, only=["optimizers"])[1]["optimizers"]["main"]["optimizer"][
        "param_groups"
    ]
    assert group["weight_decay"] == 0


@pytest.mark.timeout(120)
def test_a_forced_session_takes_another_learning_rate_as_a_fork_does(
    tmp_path: Path, source: PackageFolder
) -> None:
    step, changed = middle(source), ["optimizers.main.lr=1e-3", "+optimizers.main.weight_decay=0"]
    forked = fork(ForkRequest(package=source.path, step=step, save_root=tmp_path, overrides=changed))
    assert exact.wait(forked) == 0
    copied = Path(shutil.copytree(source.path, tmp_path / "copy"))
    forced = continue_(ContinueRequest(package=copied, step=step, overrides=changed, force=True))
    assert exact.kill_when(forced, exact.at_phase("training", step)), "the change must survive this"
    assert exact.wait(exact.go_on(copied, [])) == 0
    said = PackageFolder.open(copied).output.read_text()
    assert re.search(r"optimizers\.main .* lr, weight_decay; ", said)
    assert "inexact: optimizers.main.lr: 0.005 -> 0.001" in said
    same(copied, forked.package, but="inexact")
    with pytest.raises(ConfigError, match=r"torch\.optim\.AdamW"):
        wrong = ["optimizers.main.class=torch.optim.SGD"]
        continue_(ContinueRequest(package=copied, step=step, overrides=wrong, force=True))


@pytest.mark.timeout(120)
def test_a_model_that_does_not_fit_is_named(tmp_path: Path, source: PackageFolder) -> None:
    said = roost(
        "fork", source.path, "--at", middle(source), "net=mlp", "--save-root", tmp_path, "--name", "other"
    )
    assert said.returncode == 1 and "Traceback" not in said.stderr
    last = said.stderr.splitlines()[-1]
    assert "strict: false" in last and "fork" in last and "roost continue" not in said.stderr


def test_a_finished_run_without_a_change_prints_no_package(source: PackageFolder) -> None:
    said = roost("fork", source.path)
    assert said.returncode == 5 and not said.stdout and said.stderr.startswith("error: ")


@pytest.mark.timeout(120)
def test_the_same_by_its_step(tmp_path: Path) -> None:
    config = project(tmp_path / "p", max_epochs="3", checkpoint="{every: 1ep, fast: 9}", test_at_end="none")
    assert roost("run", config, "--name", "a").returncode == 0
    made = PackageFolder.open(tmp_path / "p" / "runs" / "a")
    steps = [info.step for info in made.store().lineage()]
    wrong = roost("continue", made.path, "--iter", 1)
    newest_first = ", ".join(map(str, reversed(steps)))
    assert wrong.returncode == 3 and f" {newest_first}" in wrong.stderr
    assert roost("continue", made.path, "--iter", steps[0], "-c", 0).returncode == 2
    assert roost("run", config, "--iter", steps[0]).returncode == 2
    assert roost("run", config, "--name", "none", "--iter", steps[0]).returncode == 3
    said = roost("run", config, "--name", "a", "--iter", steps[0])
    assert said.returncode == 0 and f" step {steps[0]}" in said.stdout
    said = roost("continue", made.path, "--iter", steps[1])
    assert said.returncode == 0 and f" step {steps[1]}" in said.stdout
    assert [one.checkpoint for one in made.sessions()] == [None, 0, 3], "of its line, not of the old one"
