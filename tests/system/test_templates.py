"""The templates `iterations` and `experiment`, as a user walks through them; killed, continued, exported."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import exact
import pytest
import torch

import roost
from roost.operations.lifecycle import new_project as templates
from roost.package import live_progress
from roost.package.package import PackageFolder
from tests.cli.programs import ROOST
from tests.cli.programs import roost as run_roost
from tests.waiting import wait_for

pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Case:
    """A template, made short."""

    template: str
    overrides: tuple[str, ...]
    kill_after: int
    """Step after which the worker is killed: between two checkpoints."""
    accuracy: str
    prefix: str
    """Of the parameters in what is exported."""


_LR = "optimizers.main.lr"
_SCHEDULER = "optimizers.main.scheduler"
CASES = (
    Case(
        "iterations",
        ("max_steps=200", "validate_every=40", "checkpoint.every=25", f"{_SCHEDULER}.step_size=120"),
        110,
        "test/accuracy",
        "net.",
    ),
    Case(
        "experiment",
        ("max_epochs=6", "visualize_every=2ep", "averages.swa.start=2ep"),
        50,
        "test/clean/accuracy",
        "model.",
    ),
)


class Walk:
    """A project, an undisturbed run of it, and one that was killed and continued."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.project = case, folder / "project"
        self.new = self.type("new", self.project, "-t", case.template, cwd=folder)
        self.whole = self.type("run", "-c", "config.yaml", "--name", "whole", "threads=1", *case.overrides)
        self.killed = self._run_and_kill()
        self.state_after_kill = self.package("killed").state
        self.continued = self.type("continue", "runs/killed")

    def type(self, *words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return run_roost(*words, cwd=cwd or self.project, OMP_NUM_THREADS="1")

    def package(self, name: str) -> PackageFolder:
        return PackageFolder.open(self.project / "runs" / name)

    def _run_and_kill(self) -> int:
        words = ["run", "-c", "config.yaml", "--name", "killed", "threads=1", *self.case.overrides]
        process = subprocess.Popen(
            [*ROOST, *words],
            cwd=self.project,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        board = self.project / "runs" / "killed" / "progress"
        after = self.case.kill_after
        wait_for(lambda: (look := live_progress.read(board)) is not None and look.step >= after)
        record = self.package("killed").sessions()[0].record
        assert record is not None
        os.kill(record["worker_pid"], signal.SIGKILL)
        return process.wait(60)


Walks = Callable[[str], Walk]


@pytest.fixture(scope="module")
def walk_of(tmp_path_factory: pytest.TempPathFactory) -> Walks:
    """The walk through a template, made when a test requests it."""

    @functools.cache
    def made(template: str) -> Walk:
        (case,) = (case for case in CASES if case.template == template)
        return Walk(case, tmp_path_factory.mktemp(template))

    return made


@pytest.fixture(scope="module", params=[case.template for case in CASES])
def walk(request: pytest.FixtureRequest, walk_of: Walks) -> Walk:
    return walk_of(request.param)


def test_check_finds_nothing(walk: Walk) -> None:
    assert walk.new.returncode == 0, walk.new.stderr
    check = walk.type("check", "config.yaml", *walk.case.overrides)
    said = check.stdout + check.stderr
    assert check.returncode == 0 and "ready: " in said, said
    assert not [line for line in said.splitlines() if line.startswith(("warning:", "inexact:"))]


def test_it_learns(walk: Walk) -> None:
    assert walk.whole.returncode == 0, walk.whole.stdout + walk.whole.stderr
    assert walk.package("whole").records().last()[walk.case.accuracy] >= 0.9


def test_killed_and_continued_it_is_the_same_run(walk: Walk) -> None:
    assert walk.killed == 1 and walk.state_after_kill == "crashed"
    assert walk.continued.returncode == 0, walk.continued.stdout + walk.continued.stderr
    assert exact.fingerprint(walk.package("killed").path) == exact.fingerprint(walk.package("whole").path)


@pytest.mark.soak
def test_its_weights_are_a_plain_file(walk: Walk, tmp_path: Path) -> None:
    file = tmp_path / "net.pt"
    said = walk.type("export", "runs/killed", "--weights", file)
    assert said.returncode == 0, said.stderr
    weights = torch.load(file, weights_only=True)
    runner = roost.open_package(walk.package("killed").path).load_model()
    assert weights and all(name.startswith(walk.case.prefix) for name in weights)
    assert all(torch.equal(weights[name], value) for name, value in runner.state_dict().items())


def test_its_script_runs(walk: Walk) -> None:
    folder = Path(templates.__file__).parents[2] / "templates" / walk.case.template / "AnalyzeScripts"
    (script,) = folder.glob("*.py")
    said = walk.type("analyze", "runs/whole", "-s", script.stem)
    assert said.returncode == 0, said.stderr
    assert "accuracy" in said.stdout or "clean" in said.stdout


# --- what only one of them shows ---------------------------------------------------------------------------


def test_it_goes_on_from_an_iteration_to_the_same_end(walk_of: Walks) -> None:
    walk = walk_of("iterations")
    said = walk.type("continue", "runs/killed", "--iter", "100")
    assert said.returncode == 0, said.stderr
    package = walk.package("killed")
    assert package.records().starts[-1] == (len(package.sessions()), 100)
    assert exact.fingerprint(package.path) == exact.fingerprint(walk.package("whole").path)


def test_another_algorithm_begins_with_pretrained_weights(walk_of: Walks) -> None:
    walk = walk_of("iterations")
    words = [
        "-f",
        "sgd.yaml",
        "--name",
        "sgd",
        "threads=1",
        "+init_from=runs/whole",
        "max_steps=20",
        f"{_LR}=1e-3",
    ]
    said = walk.type("run", "-c", "config.yaml", *words)
    assert said.returncode == 0, said.stdout + said.stderr
    assert re.search(r"init_from: .*runs/whole.* tensors", said.stdout)
    package = walk.package("sgd")
    assert package.args["optimizers"]["main"]["class"] == "torch.optim.SGD"
    assert package.records().last()["test/accuracy"] >= 0.9


def test_its_help_shows_the_options_and_they_are_checked(walk_of: Walks) -> None:
    walk = walk_of("experiment")
    shown = walk.type("run", "config.yaml", "--help").stdout
    assert "width" in shown and "noise" in shown
    for override, received in (("width=many", "'many'"), ("noise=2", "2")):
        refused = walk.type("run", "config.yaml", override)
        assert refused.returncode == 4 and f" {received} " in refused.stderr
        assert refused.stderr.startswith(f"error: {override.split('=')[0]}: ")


def test_a_variation_goes_on_from_the_weights_of_the_base(walk_of: Walks) -> None:
    walk = walk_of("experiment")
    words = ["--name", "finetune", "threads=1", "init_from.path=runs/whole", "max_epochs=3"]
    said = walk.type("run", "finetune.yaml", *words)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "'ema'" in said.stdout and "frozen: 1 " in said.stdout
    noisy, before = (walk.package(name).records().last() for name in ("finetune", "whole"))
    assert noisy["test/noisy/accuracy"] > before["test/noisy/accuracy"]


def test_a_wider_variation_changes_what_it_says_alone(walk_of: Walks) -> None:
    walk = walk_of("experiment")
    base, wide = (
        json.loads(walk.type("run", config, "--print-config", "--json").stdout)
        for config in ("config.yaml", "wide.yaml")
    )
    assert base.keys() | {"width"} == wide.keys() | {"width"}
    assert {key for key in wide if wide[key] != base.get(key)} == {"width", "averages", "description"}
    assert wide["averages"]["ema"]["decay"] > base["averages"]["ema"]["decay"]
