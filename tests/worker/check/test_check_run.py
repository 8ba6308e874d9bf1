"""The run in miniature, on projects that are fine and on such that would fail hours later."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from roost.base.errors import CheckpointError, ConfigError, ContractError, Refused
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.results import check_findings
from roost.package.results.check_findings import CheckFindings
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.worker.check.check_run import CheckRun, _describe_first_sample
from roost.worker.check.stages import StageReporter
from tests.messages import Messages
from tests.project.projects import DATASET, HOOKS, RUNNER, project

SETS = DATASET.replace("40, 4", "{samples}, 4").replace("valid=data", "valid=data, test=data")
"""As many samples as asked for, and a test set."""


def dataset(samples: int = 44) -> str:
    return SETS.replace("{samples}", str(samples))


def method(text: str, runner: str = RUNNER) -> str:
    """The Runner with a method more."""
    return f"{runner}\n    " + text.replace("\n", "\n    ") + "\n"


def walked(
    package: PackageFolder,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception] | None = None,
    **request: Any,
) -> tuple[CheckFindings, str]:
    """Walks; gives what was written down, and what was raised in one text with its notes."""
    monkeypatch.chdir(package.path)
    number = package.new_session({"overrides": [], "device": "cpu", "project": "/nowhere", **request})
    reporter, said = StageReporter(package.path), ""
    reporter.begin("imports")
    try:
        CheckRun(package, package.sessions()[number - 1].request, reporter).run()
    except Exception as raised:  # noqa: BLE001  - for the tests that expect one
        assert error is not None and isinstance(raised, error), repr(raised)
        reporter.fail()
        said = "\n".join([str(raised), *getattr(raised, "__notes__", [])])
    else:
        assert error is None, "it must fail"
    return check_findings.read(package.path), said


def names(found: CheckFindings, state: str = "done") -> list[str]:
    return [stage.name for stage in found.stages if stage.state == state]


BEST = {"best": [{"monitor": "valid/loss", "mode": "min"}]}


def test_a_project_that_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], messages: Messages
) -> None:
    scheduler = {
        "class": "torch.optim.lr_scheduler.LinearLR",
        "start_factor": 1.0,
        "end_factor": 0.5,
        "total_iters": "${total_steps}",
    }
    package = project(
        tmp_path,
        dataset=dataset(),
        runner=method("def visualize(self, batch):\n    return {'note': 'x'}"),
        max_steps=100,
        checkpoint=BEST,
        early_stopping={"monitor": "valid/loss"},
        hooks=["Hooks.py:Rules"],
        optimizers={"main": {"class": "torch.optim.Adam", "lr": 0.1, "scheduler": scheduler}},
    )
    found, _ = walked(package, monkeypatch)
    assert ", ".join(names(found)) == (
        "imports, data, model, samples, start, first step, row, save, last step, validation, test, hooks, "
        "visualize, speed, schedule, load"
    )
    seen = {stage.name: stage.seen for stage in found.stages}
    assert seen["data"] == "train 44, valid 44, test 44"
    assert seen["model"].startswith("19 ") and seen["model"].endswith(" cpu")
    assert seen["samples"].startswith("train float32 (1, 4), float32 (1,); valid ")
    assert seen["start"].endswith(" valid/loss")
    for name, size in (("first step", 10), ("last step", 4)):
        assert seen[name].startswith(f"{size} ")
        assert seen[name].endswith(f": float32 ({size}, 4), float32 ({size},)")
    assert seen["validation"].startswith("valid: loss 0.") and seen["row"].startswith("train: loss 0.")
    assert seen["hooks"] == "Rules" and seen["visualize"] == "note.txt"
    assert "main 0.099 " in seen["schedule"] and seen["schedule"].endswith(" 0.05")
    messages.check("\n".join(seen[name] for name in ("model", "start", "first step", "schedule", "load")))
    assert found.warnings == []
    measured = found.measured
    assert (measured["steps_per_epoch"], measured["total_steps"], measured["parameters"]) == (5, 100, 19)
    infos = checkpoint.read_manifests(package.checkpoints)
    assert [info.step for info in infos] == [1, 2] and "valid/loss" in infos[1].metrics
    sizes = sum(file["bytes"] for file in infos[1].files.values())
    assert measured["checkpoint_bytes"] == sizes and measured["peak_host_mb"] > 50
    assert min(measured[f"{name}_seconds"] for name in ("step", "validate", "test", "save")) > 0
    assert measured["test"]["test/loss"] > 0 and measured["validation"]["valid/loss"] > 0
    assert re.search(r"checkpoint 1 .* 2 .*test: loss 0\.", seen["test"])
    assert len(capfd.readouterr().out.splitlines()) == len(found.stages)


def test_a_model_that_the_first_batch_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    lazy = RUNNER.replace("nn.Linear(4, width)", "nn.LazyLinear(width)")
    found, _ = walked(project(tmp_path, dataset=dataset(), runner=lazy), monkeypatch)
    seen = {stage.name: stage.seen for stage in found.stages}
    assert seen["model"].startswith("4 ") and " 2 " in seen["model"] and found.measured["parameters"] == 19
    messages.check(f"{seen['model']}\n{seen['load']}")


BATCH_NORM = RUNNER.replace("nn.Dropout(0.5)", "nn.BatchNorm1d(width)")
FAILS_SHORT = """def evaluate(self, batch):
    assert len(batch[0]) == 10, "a short one"
    return {"loss": self.loss(batch)}"""
TRAINS_NOT = """x, y = batch
        if self.training:
            raise ValueError("not in training")"""
UNSAVABLE = "def get_extra_state(self):\n    return object()\ndef set_extra_state(self, state):\n    pass"
CLIMBS = {"class": "torch.optim.lr_scheduler.StepLR", "step_size": 9, "warmup_steps": 50}
TWO_OPTIMIZERS = """def optimizers(self):
    import torch
    head, tail = self.net[0], self.net[2]
    first = torch.optim.SGD(head.parameters(), lr=0.1)
    return {"head": roost.Optim(first, torch.optim.lr_scheduler.StepLR(first, 40)),
            "tail": roost.Optim(torch.optim.SGD(tail.parameters(), lr=0.1))}"""
FORGETS_ONE = """
    def update(self, stepper, batches):
        return dict(stepper.run(self.loss, batches, optimizer="head"))
"""
SUMMARIZES = "def summarize(self, values, split):\n    return {'f1': 1.0}"
FAILS_IN_SUMMARY = "def summarize(self, values, split):\n    raise ValueError('only one class')"
FAILS_IN_TEST = "def summarize(self, values, split):\n    return {'f1': 1.0} if split == 'valid' else 1 / 0"


@pytest.mark.parametrize(
    ("given", "error", "at", "says"),
    [
        ({"runner": "import no_such_module"}, ModuleNotFoundError, "imports", "no_such_module"),
        (
            {"dataset": dataset().replace("return", "raise OSError('gone')\n        return")},
            OSError,
            "data",
            "gone",
        ),
        ({"runner": RUNNER.replace("x, y = batch", TRAINS_NOT)}, ValueError, "first step", "not in training"),
        ({"runner": BATCH_NORM, "dataset": dataset(41)}, ValueError, "last step", "more than 1 value"),
        ({"runner": method(FAILS_SHORT)}, AssertionError, "validation", "a short one"),
        (
            {"runner": method("def evaluate(self, batch):\n    return 1 / 0")},
            ZeroDivisionError,
            "start",
            "zero",
        ),
        ({"runner": method(UNSAVABLE)}, CheckpointError, "save", "_extra_state"),
        (
            {"early_stopping": {"monitor": "valid/acc"}},
            ConfigError,
            "start",
            ": valid/loss",
        ),
        (
            {"early_stopping": {"monitor": "valid/acc"}, "runner": method(SUMMARIZES)},
            *(ConfigError, "validation", ": valid/f1, valid/loss"),
        ),
        (
            {"runner": method(FAILS_IN_SUMMARY)},
            ValueError,
            "validation",
            "only one class\n",
        ),
        ({"runner": method(FAILS_IN_TEST)}, ZeroDivisionError, "test", "division by zero"),
    ],
)
def test_what_would_fail_later(
    given: dict[str, Any],
    error: type[Exception],
    at: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = project(tmp_path, **{"dataset": dataset(), "max_steps": 1000, "test_at_end": "last", **given})
    found, said = walked(package, monkeypatch, error)
    assert (found.last, names(found, "failed")) == (at, [at])
    assert says in said


@pytest.mark.parametrize(
    "name", ["on_start", "before_step", "on_step", "on_epoch", "on_eval", "on_save", "on_stop"]
)
def test_a_hook_that_fails(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever that is; one whose interval is longer than the check is due at its end."""
    code = f"import roost\nclass Rules(roost.Hook):\n    every = '77'\n    def {name}(self, *_): 1 / 0\n"
    package = project(
        tmp_path, dataset=dataset(), hooks_code=code, hooks=["Hooks.py:Rules"], max_epochs=3, max_steps=None
    )
    found, _ = walked(package, monkeypatch, ZeroDivisionError)
    at = {"on_start": "start", "before_step": "first step", "on_eval": "validation", "on_save": "save"}
    assert found.last == at.get(name, "hooks")


def test_a_picture_that_fails_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], messages: Messages
) -> None:
    runner = method("def visualize(self, batch):\n    return {'a': 1 / 0}")
    package = project(tmp_path, runner=runner, visualize_every="1ep")
    found, _ = walked(package, monkeypatch)
    assert names(found, "failed") == ["visualize"] and names(found)[-1] == "load"
    (warning,) = found.warnings
    assert warning.startswith("Runner.visualize() ")
    messages.check(warning)
    printed = capfd.readouterr().err
    assert printed.count("Traceback") == 1 and str(tmp_path) not in printed
    assert "Model/Runner.py" in printed and "ZeroDivisionError" in printed and "--debug" in printed


COUNTS = RUNNER.replace("def loss(", "calls = 0\n\n    def loss(").replace(
    "x, y = batch", "x, y = batch\n        self.calls += 1"
)
FORGETS = method(
    "def get_extra_state(self): return {'calls': self.calls}\ndef set_extra_state(self, state): ...", COUNTS
)
DRIFTS = COUNTS.replace("squeeze(1), y)", "squeeze(1) * self.calls, y)")
VALUES = "def evaluate(self, batch):\n    return {'loss': self.loss(batch), 'x': batch[0], 'y': 1 / batch[1]}"
ANY = "import random\nrandomly = random.Random()\n"
ANY += DATASET.replace("data = ", "x = Any()\n        data = ").replace(
    "TensorDataset(x, (x.sum(1) > 0).float())", "x"
)
ANY += (
    "\nclass Any:\n    def __len__(self): return 40\n"
    "    def __getitem__(self, i): return torch.full((4,), randomly.random()), torch.ones(())\n"
)


NOTES_A_RESUME = """import roost
class Rules(roost.Hook):
    def on_start(self, trainer):
        if trainer.progress.step:
            trainer.note_inexact("only a resumed run notes it")
"""


@pytest.mark.parametrize(
    ("given", "warnings"),
    [
        ({"runner": COUNTS}, ["inexact: self.calls "]),
        (
            {"runner": FORGETS},
            [": model.state._extra_state.calls"],
        ),
        (
            {"runner": DRIFTS},
            [" model.", "inexact: self.calls"],
        ),
        (
            {"runner": method(VALUES)},
            ["valid/x ", "valid/y .*inf"],
        ),
        (
            {"dataset": ANY, "data": {"batch_size": 10, "num_workers": 0}},
            ["bits", "inexact: .*training set"],
        ),
        ({"validate_every": "10min"}, ["inexact: .*10min"]),
        ({"hooks_code": NOTES_A_RESUME, "hooks": ["Hooks.py:Rules"]}, ["inexact: only a resumed run"]),
        (
            {"gradient_accumulation_steps": 64},
            ["64 .* 4"],
        ),
        (
            {"optimizers": {"main": {"class": "torch.optim.SGD", "lr": 0.1, "scheduler": CLIMBS}}},
            ["optimizers.main.scheduler.warmup_steps .*50"],
        ),
        (
            {"runner": method(TWO_OPTIMIZERS) + FORGETS_ONE},
            [
                "optimizers .*config",
                "optimizer tail .*2 .* 4 ",
            ],
        ),
        (
            {"runner": BATCH_NORM, "dataset": dataset(41), "on_step_error": "skip"},
            ["1 of 2"],
        ),
    ],
)
def test_what_the_run_would_do_badly_and_go_on(
    given: dict[str, Any],
    warnings: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    messages: Messages,
) -> None:
    found, _ = walked(project(tmp_path, **{"max_steps": 50, **given}), monkeypatch)
    assert len(found.warnings) == len(warnings), found.warnings
    for text, warning in zip(found.warnings, warnings, strict=True):
        assert re.search(f"^{warning}" if warning.startswith("inexact: ") else warning, text)
    messages.check("\n".join(found.warnings))
    printed = capfd.readouterr().out
    for text in found.warnings:
        assert printed.count(text[:20]) >= 1


@pytest.mark.parametrize(
    ("loss", "fails"), [("self.loss", False), ("lambda batch: 1 / 0", True)], ids=["fine", "broken"]
)
def test_an_optimizer_that_seldom_moves(
    loss: str, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    """It moves in the check all the same; and after it is loaded, the next step gives the same bits."""
    both = f'"head"), **stepper.run({loss}, batches, optimizer="tail"))'
    optimizers = TWO_OPTIMIZERS.replace("lr=0.1))", "lr=0.1, momentum=0.9), every_n_steps=1000)")
    runner = method(optimizers) + FORGETS_ONE.replace('"head"))', both)
    package = project(tmp_path, runner=runner, max_steps=50, optimizers=None)
    found, _ = walked(package, monkeypatch, ZeroDivisionError if fails else None)
    assert names(found, "failed") == (["last step"] if fails else []) and found.warnings == []
    if not fails:
        seen = {stage.name: stage.seen for stage in found.stages}
        assert "head 0.1 " in seen["schedule"] and "tail" not in seen["schedule"], "the other has none"
        messages.check(f"{seen['schedule']}\n{seen['load']}")


def test_sets_that_nothing_evaluates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    runner = method(
        "def update(self, stepper, batches):\n    return {}", RUNNER.replace("def loss", "def mine")
    )
    _, said = walked(project(tmp_path, runner=runner), monkeypatch, ContractError)
    assert said.startswith("Runner ") and "evaluate()" in said
    messages.check(said)


SCHEDULER = """
from torch.optim.lr_scheduler import LRScheduler

class Short(LRScheduler):
    def get_lr(self):
        if self.last_epoch > 700:
            raise ValueError("no further")
        return [0.1 for _ in self.base_lrs]
"""


def test_a_schedule_that_is_too_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    main = {"class": "torch.optim.SGD", "lr": 0.1, "scheduler": {"class": "Hooks.py:Short"}}
    package = project(tmp_path, hooks_code=HOOKS + SCHEDULER, max_steps=1000, optimizers={"main": main})
    found, said = walked(package, monkeypatch, ValueError)
    assert found.last == "schedule"
    error, note = said.splitlines()
    assert error == "no further" and "step 701 " in note
    messages.check(note)


@pytest.mark.parametrize("unit", ["epoch", "validation"])
def test_a_schedule_is_moved_as_often_as_in_the_run(
    unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = {"class": "torch.optim.lr_scheduler.StepLR", "step_size": 1, "gamma": 0.5, "unit": unit}
    main = {"class": "torch.optim.SGD", "lr": 1.0, "scheduler": scheduler}
    package = project(tmp_path, max_epochs=5, max_steps=None, optimizers={"main": main})
    found, _ = walked(package, monkeypatch)
    (seen,) = (stage.seen for stage in found.stages if stage.name == "schedule")
    assert "main 0.5 " in seen and seen.endswith(" 0.0312" if unit == "epoch" else " 0.5")


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({"max_steps": 1}, ["first step"]),
        ({"data": {"batch_size": 64}}, ["first step", "next step"]),
        ({"data": {"batch_size": 10, "num_workers": 2}}, ["first step", "last step"]),
        ({"gradient_accumulation_steps": 3}, ["first step", "last step"]),
        ({"max_steps": None, "max_time": "1h"}, ["first step", "last step"]),
    ],
)
def test_runs_of_other_shapes(
    given: dict[str, Any],
    steps: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    messages: Messages,
) -> None:
    found, _ = walked(project(tmp_path, dataset=dataset(), **given), monkeypatch)
    assert [name for name in names(found) if name.endswith("step")] == steps
    assert found.warnings == []
    (seen,) = (stage.seen for stage in found.stages if stage.name == "load")
    messages.check(seen)  # of the next step only where there was one


def test_a_mode_that_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = walked(project(tmp_path, step_mode="dry"), monkeypatch)
    assert not {"save", "validation", "load"} & set(names(found)) and "speed" in names(found)


def test_a_hook_that_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    code = HOOKS.replace("request_save(hold=True)", "request_stop('enough')").replace('"3"', '"1"')
    found, _ = walked(project(tmp_path, hooks_code=code, hooks=["Hooks.py:Rules"]), monkeypatch)
    (warning,) = found.warnings
    assert "step 1" in warning and "enough" in warning
    messages.check(warning)


def test_a_gpu_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    _, said = walked(project(tmp_path), monkeypatch, Refused, device="cuda")
    assert said.startswith("device: ") and "'cuda'" in said and "-CPU" in said


def test_one_sample() -> None:
    class Rows:
        def __init__(self) -> None:
            self.asked: list[int] = []

        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> dict[str, Any]:
            self.asked.append(index)
            return {"x": torch.zeros(3, dtype=torch.float16), "name": "a"}

    rows = Rows()
    assert _describe_first_sample(Loader(rows, plan=BatchPlan(9, 4))) == "x: float16 (1, 3), name: 1 str"
    assert rows.asked == [0]
    x = torch.arange(23.0)
    many = Loader(TensorDataset(x[:, None], x), plan=BatchPlan(23, 5), num_workers=4)
    assert _describe_first_sample(many) == "float32 (1, 1), float32 (1,)"
