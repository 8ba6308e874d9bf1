"""A LightningModule is trained as a Runner: the same bits as a Runner by hand, killed and continued."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import roost
from roost.base.errors import ContractError
from roost.compat.lightning import LightningRunner
from roost.package.package import PackageFolder
from roost.project import native_project, trainer_assembly
from roost.project.package_context import package_code
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.project.lightning.modules import BASES, DATA, MODULE
from tests.project.projects import RUNNER, project

SETTINGS: dict[str, Any] = {
    "max_steps": None,
    "max_epochs": 3,
    "log_every": "1",
    "validate_every": "2",
    "optimizers": None,
    "module": {"width": 3},
    "checkpoint": {"every": "2", "asynchronous": False, "best": [{"monitor": "valid/acc", "mode": "max"}]},
    "test_at_end": "none",
}


def lit(folder: Path, **settings: Any) -> PackageFolder:
    given = {"runner": MODULE, **SETTINGS, **settings}
    return project(folder, files={"bases.py": BASES}, **given)


def assembled(package: PackageFolder) -> Trainer:
    number = package.new_session({"project": str(package.path)})
    experiment = native_project.load(package, project=str(package.path), device="cpu")
    return trainer_assembly.assemble(experiment, package, session=number)


def train(package: PackageFolder) -> Trainer:
    with package_code(package):
        trainer = assembled(package)
        assert trainer.fit() == "finished"
    return trainer


def train_forked(package: PackageFolder, **variables: str) -> int:
    """Trains in a child; returns its exit code."""
    if not (child := os.fork()):
        try:
            os.environ.update(variables)
            train(package)
            os._exit(0)
        except BaseException:  # noqa: BLE001  - the child must not go on with the tests
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def rows_of(package: PackageFolder) -> list[dict[str, float]]:
    left_out = ("time", "perf/", "lr")
    rows = roost.open_package(package.path).rows()
    return [{name: row[name] for name in row if not name.startswith(left_out)} for row in rows]


def states(package: PackageFolder) -> Any:
    found = roost.open_package(package.path).load()
    return found["model"]["state"], found["optimizers"]


def is_equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(is_equal, a, b))
    if hasattr(a, "dtype"):
        return torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    return bool(a == b)


def test_a_module_has_the_bits_of_a_runner_by_hand(tmp_path: Path) -> None:
    shared = {"max_steps": 6, "max_epochs": None}
    optimizer = {"class": "torch.optim.SGD", "lr": 0.1, "momentum": 0.9}
    scheduler = {"class": "torch.optim.lr_scheduler.StepLR", "step_size": 1, "gamma": 0.5, "unit": "epoch"}
    by_hand = {**SETTINGS, **shared, "optimizers": {"main": {**optimizer, "scheduler": scheduler}}}
    plain = project(
        tmp_path / "plain", runner=RUNNER, **{**by_hand, "checkpoint": {"every": "2"}, "width": 3}
    )
    module = lit(tmp_path / "lit", **shared)
    train(plain)
    train(module)
    ours, theirs = states(module)[0], states(plain)[0]
    assert all(
        torch.equal(torch.as_tensor(ours[f"module.{name}"]), torch.as_tensor(theirs[name])) for name in theirs
    )
    losses = [[row["train/loss"] for row in rows_of(one) if "train/loss" in row] for one in (plain, module)]
    assert losses[0] == losses[1] and len(losses[0]) == 6


@pytest.mark.parametrize("dataset", [None, DATA], ids=["a Dataset", "a data module"])
def test_a_killed_training_ends_bit_for_bit_as_one_that_was_not(dataset: str | None, tmp_path: Path) -> None:
    given = {} if dataset is None else {"dataset": dataset, "datamodule": {"batch_size": 10}}
    if dataset is not None:
        best = [{"monitor": "valid/0/acc", "mode": "max"}]
        given["checkpoint"] = {"every": "2", "asynchronous": False, "best": best}
    whole, killed = (lit(tmp_path / name, **given) for name in ("whole", "killed"))
    assert train_forked(whole) == 0
    for kill_at in ("4", "7", "12"):  # in an epoch, with metrics of its steps up to the checkpoint
        assert train_forked(killed, KILL_AT=kill_at) == -9
    assert train_forked(killed) == 0
    assert is_equal(states(whole), states(killed))
    assert rows_of(whole) == rows_of(killed) and rows_of(whole)[-1]["step"] == 12


def test_what_is_recorded_and_which_hooks_are_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = lit(tmp_path, max_epochs=2, validate_every="1ep")
    trainer = train(package)
    rows = {row["step"]: row for row in rows_of(package)}
    assert set(rows[1]) == {"step", "epoch", "train/loss", "train/mean", "train/batch"}
    assert [rows[step]["train/batch"] for step in range(1, 9)] == [0, 1, 2, 3, 0, 1, 2, 3]
    last = rows[8]
    assert last["train/epoch_end"] == 4 and 0 <= last["train/acc"] <= 1
    assert last["valid/samples"] == 40 and 0 <= last["valid/acc"] <= 1 and last["valid/loss"] > 0
    batches = ["batch 0 10", "batch 1 10", "batch 2 10", "batch 3 10"]
    epochs = [[f"epoch {n}", *batches, f"epoch end {n}", f"validation {n}"] for n in (0, 1)]
    assert trainer.runner.module.calls == ["validation 0", *epochs[0], *epochs[1]]
    assert trainer.evaluate("valid")["valid/acc"] == last["valid/acc"]
    with package_code(package):
        (batch,) = [trainer.loaders["valid"].first_batch()]
    assert batch is not None
    assert list(trainer.runner.test(batch.value)) == ["hits"]
    assert trainer.runner.predict(batch.value)["prediction"].shape == (len(batch.value[1]),)
    inexact = [line for line in capsys.readouterr().out.splitlines() if line.startswith("inexact")]
    assert len(inexact) == 1 and "self.module.calls " in inexact[0], "the one list that is not cleared"


class Module(nn.Module):
    """The smallest module; `shape` is what configure_optimizers returns."""

    def __init__(self, shape: Any = None, **attributes: Any) -> None:
        super().__init__()
        self.net = nn.Linear(2, 1)
        self.shape = shape
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def training_step(self, batch: Any) -> Any:
        return self.net(batch).square().mean()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=1.0)
        return self.shape(optimizer) if self.shape is not None else optimizer


def step_lr(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)


def plateau(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)


SHAPES: list[tuple[Any, tuple[str, str | None]]] = [
    (None, ("step", None)),
    (lambda o: [o], ("step", None)),
    (lambda o: ([o], [step_lr(o)]), ("epoch", None)),
    (lambda o: ([o], [{"scheduler": step_lr(o), "interval": "step", "name": "lr"}]), ("step", None)),
    (lambda o: ([o], []), ("step", None)),
    (lambda o: {"optimizer": o}, ("step", None)),
    (lambda o: {"optimizer": o, "lr_scheduler": step_lr(o)}, ("epoch", None)),
    (lambda o: ({"optimizer": o, "lr_scheduler": {"scheduler": step_lr(o)}},), ("epoch", None)),
    (
        lambda o: {"optimizer": o, "lr_scheduler": plateau(o), "monitor": "val_loss"},
        ("validation", "valid/loss"),
    ),
    (
        lambda o: {"optimizer": o, "lr_scheduler": {"scheduler": plateau(o), "monitor": "train_acc_epoch"}},
        ("validation", "train/acc"),
    ),
]


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_every_shape_of_optimizers(number: int) -> None:
    shape, expected = SHAPES[number]
    runner = LightningRunner(Module(shape))
    (optim,) = runner.optimizers().values()
    assert isinstance(optim, roost.Optim) and (optim.unit, optim.monitor) == expected
    assert runner.module.optimizers() is optim.optimizer  # type: ignore[operator]
    assert runner.module.lr_schedulers() is optim.scheduler  # type: ignore[operator]


def test_several_schedulers_and_their_frequency() -> None:
    def shape(o: torch.optim.Optimizer) -> Any:
        return [o], [{"scheduler": step_lr(o), "frequency": 2}, step_lr(o)]

    (optim,) = LightningRunner(Module(shape)).optimizers().values()
    assert isinstance(optim, roost.Optim)
    optim.scheduler.step()
    assert optim.lr == 0.5
    optim.scheduler.step()
    assert optim.lr == 0.125
    (again,) = LightningRunner(Module(shape)).optimizers().values()
    assert isinstance(again, roost.Optim)
    again.load_state_dict(optim.state_dict())
    for _ in range(2):
        optim.scheduler.step()
        again.scheduler.step()
    assert again.lr == optim.lr < 0.125


BAD: dict[str, Any] = {
    "none": lambda o: None,
    "several": lambda o: [o, o],
    "units": lambda o: ([o], [step_lr(o), {"scheduler": step_lr(o), "interval": "step"}]),
    "metric": lambda o: {"optimizer": o, "lr_scheduler": plateau(o)},
    "frequency": lambda o: (
        [o], [{"scheduler": plateau(o), "monitor": "val_loss", "frequency": 2}]
    ),
    "unknown": lambda o: ([o], [{"scheduler": step_lr(o), "every": 3}]),
}  # fmt: skip


def test_what_is_refused(messages: Messages) -> None:
    for shape in BAD.values():
        with pytest.raises(ContractError) as caught:
            LightningRunner(Module(shape)).optimizers()
        messages.check(caught.value)
    with pytest.raises(ContractError) as manual:
        LightningRunner(Module(automatic_optimization=False))
    messages.check(manual.value)
    for call in (
        lambda: LightningRunner(Module(training_step=lambda batch: None)).loss(torch.zeros(1, 2)),
        lambda: LightningRunner(Module()).evaluate(torch.zeros(1, 2)),
        lambda: LightningRunner({}).build(),
    ):
        with pytest.raises(ContractError) as other:
            call()
        messages.check(other.value)


class Named(Module):
    def on_before_optimizer_step(self, optimizer: Any) -> None: ...

    def on_save_checkpoint(self, checkpoint: Any) -> None: ...

    def training_step(self, batch: Any) -> Any:
        self.log("sum", 3, reduce_fx="sum")  # type: ignore[operator]
        self.log("sum", 3, reduce_fx="sum")  # type: ignore[operator]
        return super().training_step(batch)


def test_what_the_trainer_of_a_module_knows(tmp_path: Path) -> None:
    module = train(lit(tmp_path, gradient_accumulation_steps=2)).runner.module
    found = module.trainer
    assert (found.max_epochs, found.max_steps, found.estimated_stepping_batches) == (3, -1, 6)
    assert (found.num_training_batches, found.accumulate_grad_batches, found.world_size) == (2, 2, 1)
    assert found.is_global_zero and found.training and not (found.validating or found.testing)
    assert found.optimizers == [module.optimizers()] and module.global_step == 6
    with pytest.raises(AttributeError, match=r"self\.trainer\.strategy has no counterpart"):
        print(found.strategy)


def test_what_is_not_covered_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    runner = LightningRunner(Named())
    assert (
        capsys.readouterr().out == "Named: roost does not call on_before_optimizer_step, on_save_checkpoint\n"
    )
    assert runner.loss(torch.ones(1, 2))["sum"] == 3
    assert capsys.readouterr().out.count("reduce_fx") == 1
