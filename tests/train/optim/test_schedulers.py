"""Every scheduler of torch, those of a project, the warm-up, and what is refused before the run."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler, swa_utils

from roost.base import state_tree
from roost.base.errors import CheckpointError, ConfigError
from roost.config.interpolation import fill_late
from roost.config.objects import build, unload_project
from roost.train.optim.optimizer import LR_SCALE, Optim
from roost.train.optim.optimizer_config import build_optimizers
from roost.train.optim.schedulers import Warmup, check_schedules
from tests.messages import Messages
from tests.train.optim.test_optimizer_config import TOTALS, Net, settings

HOME = "torch.optim.lr_scheduler."

SCHEDULES = '''
"""Schedules of a project."""

import torch

from roost.train.optim.schedulers import Warmup as Unrelated


def noam(step):
    return (step + 1) ** -0.5


def half(step):
    return 0.5


def failing(step):
    return {}[step]


def nan(step):
    return float("nan") if step == 2 else 1.0


def powers(base):
    return lambda step: base**step


class Waves:
    """Changes with each call: its state is more than the number of the step."""

    def __init__(self, depth):
        self.depth, self.calls = depth, 0

    def __call__(self, step):
        self.calls += 1
        return 1 - self.depth * (self.calls % 3)


ready = Waves(0.3)


class Greedy:
    """Halves the rate when the metric grew; no subclass of torch's."""

    def __init__(self, optimizer, factor=0.5):
        self.optimizer, self.factor, self.last = optimizer, factor, None

    def step(self, metric):
        if self.last is not None and metric > self.last:
            for group in self.optimizer.param_groups:
                group["lr"] *= self.factor
        self.last = metric

    def state_dict(self):
        return {"last": self.last}

    def load_state_dict(self, state):
        self.last = state["last"]


class Own(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        return [base / (1 + self.last_epoch) for base in self.base_lrs]
'''


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "Schedules.py").write_text(SCHEDULES)
    yield tmp_path
    unload_project(tmp_path)


def make(scheduler: dict[str, Any], root: Path | None = None, **main: Any) -> tuple[Net, Optim]:
    """A net and its optimizer, with two groups of parameters."""
    groups = [{"params": "*.bias", "lr": 0.2}]
    asked = {"class": "torch.optim.SGD", "lr": 0.1, "momentum": 0.9, "groups": groups, **main}
    net = Net()
    found = build_optimizers(net, settings(main={**asked, "scheduler": scheduler}), totals=TOTALS, root=root)
    return net, found["main"]


def turn(optim: Optim, step: int, net: nn.Module | None = None) -> None:
    """A step of the run, with what the Schedule hook does in it; two steps are an epoch with a validation."""
    if net is not None:
        optim.optimizer.zero_grad()
        net(torch.full((2, 3), 0.1 * (step % 5))).square().sum().backward()
        with optim.scaled_rates():
            optim.optimizer.step()
    if isinstance(optim.scheduler, Warmup):
        optim.scheduler.advance_warmup()
    if optim.unit == "step" or step % 2:
        optim.scheduler.step(*([] if optim.monitor is None else [1.0 + step % 3]))


def rates(optim: Optim, steps: int) -> list[float]:
    """The learning rate of the first group before the first step and after each."""
    found = [optim.lr]
    for step in range(steps):
        turn(optim, step)
        found.append(optim.lr)
    return found


CHAIN = [{"class": HOME + "ExponentialLR", "gamma": 0.9}, {"class": HOME + "ConstantLR", "total_iters": 4}]
SEQUENCE = {"class": HOME + "SequentialLR", "schedulers": CHAIN, "milestones": [4]}
EVERY: dict[str, list[dict[str, Any]]] = {
    "ChainedScheduler": [{"schedulers": CHAIN}, {"schedulers": [SEQUENCE, CHAIN[0]]}],
    "ConstantLR": [{}],
    "CosineAnnealingLR": [{"T_max": 7}, {"T_max": "${total_steps}", "eta_min": 0.01}],
    "CosineAnnealingWarmRestarts": [{"T_0": 3}, {"T_0": 2, "T_mult": 2}],
    "CyclicLR": [
        {"base_lr": 0.1, "max_lr": 0.2, "step_size_up": 3},
        {"base_lr": [0.1, 0.2], "max_lr": [0.2, 0.4], "step_size_up": 2, "mode": "exp_range", "gamma": 0.9},
        {"base_lr": 0.1, "max_lr": 0.2, "scale_fn": "Schedules.py:half"},
        {"base_lr": 0.1, "max_lr": 0.2, "scale_fn": {"class": "Schedules.py:Waves", "depth": 0.1}},
    ],
    "ExponentialLR": [{"gamma": 0.9}],
    "LambdaLR": [
        {"lr_lambda": "Schedules.py:noam"},
        {"lr_lambda": ["Schedules.py:noam", "Schedules.py:half"]},
        {"lr_lambda": {"class": "Schedules.py:Waves", "depth": 0.2}},
        {"lr_lambda": {"class": "Schedules.py:powers", "base": 0.9}},
    ],
    "LinearLR": [{}, {"start_factor": 0.1, "total_iters": "${steps_per_epoch}"}],
    "MultiStepLR": [{"milestones": [2, "${steps_per_epoch}"]}],
    "MultiplicativeLR": [{"lr_lambda": {"class": "Schedules.py:Waves", "depth": 0.1}}],
    "OneCycleLR": [
        {"max_lr": 0.2, "total_steps": "${total_steps}"},
        {"max_lr": [0.2, 0.4], "epochs": 4, "steps_per_epoch": "${steps_per_epoch}", "three_phase": True},
    ],
    "PolynomialLR": [{"total_iters": 1e1, "power": 2.0}],
    "ReduceLROnPlateau": [
        {"unit": "validation", "monitor": "valid/loss", "patience": 0},
        {"unit": "validation", "monitor": "valid/loss", "patience": 1, "min_lr": [0.01, 0.05], "cooldown": 1},
    ],
    "SWALR": [{"swa_lr": 0.05, "anneal_epochs": 4}, {"swa_lr": [0.05, 0.1], "anneal_strategy": "linear"}],
    "SequentialLR": [
        {"schedulers": CHAIN, "milestones": [4]},
        {
            "schedulers": [
                {"class": HOME + "LinearLR"},
                {"class": HOME + "OneCycleLR", "max_lr": 0.3, "total_steps": 30},
                {"class": HOME + "MultiplicativeLR", "lr_lambda": "Schedules.py:half"},
                {"class": "torch.optim.swa_utils.SWALR", "swa_lr": 0.05},
            ],
            "milestones": [2, 4, 6],
        },
    ],
    "StepLR": [{"step_size": 2, "gamma": 0.5}],
}
OTHERS: list[dict[str, Any]] = [
    {"class": "Schedules.py:Greedy", "unit": "validation", "monitor": "valid/loss"},
    {"class": "Schedules.py:Own"},
    {"class": HOME + "LambdaLR", "lr_lambda": "Schedules.py:ready"},
]


def path_of(name: str) -> str:
    return ("torch.optim.swa_utils." if name == "SWALR" else HOME) + name


CASES = [{"class": path_of(name), **one} for name, several in EVERY.items() for one in several] + OTHERS


def test_every_scheduler_of_torch_is_here() -> None:
    classes = [*vars(lr_scheduler).values(), *vars(swa_utils).values()]
    found = {
        one.__name__
        for one in classes
        if inspect.isclass(one) and issubclass(one, lr_scheduler.LRScheduler) and one.__name__[0] != "_"
    }
    assert found - {"LRScheduler"} == EVERY.keys()


@pytest.mark.parametrize(("unit", "warmup_steps"), [("step", 0), ("step", 4), ("epoch", 4)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["class"].rpartition(".")[2])
def test_a_scheduler_goes_on_exactly(
    case: dict[str, Any], unit: str, warmup_steps: int, project: Path
) -> None:
    """Built, stepped, its state through the codec of checkpoints in the midst of the warm-up and after it."""

    def fresh() -> tuple[Net, Optim]:
        unload_project(project)  # as another process would: `ready` is an object of the module
        return make({"unit": unit, **case, "warmup_steps": warmup_steps}, project)

    net, optim = fresh()
    states: dict[int, Any] = {}
    for step in range(20):
        if step in (0, 2, 7):
            packed = state_tree.pack({"net": net.state_dict(), "optim": optim.state_dict()})
            states[step] = copy.deepcopy(state_tree.unpack(*packed))  # its tensors are those of the net
        turn(optim, step, net)
    for cut, state in states.items():
        second = fresh()
        second[0].load_state_dict(state["net"])
        second[1].load_state_dict(state["optim"])
        for step in range(cut, 20):
            turn(second[1], step, second[0])
        assert bits(second[1].state_dict()) == bits(optim.state_dict())
        assert bits(dict(second[0].state_dict())) == bits(dict(net.state_dict()))


def bits(value: Any) -> Any:
    skeleton, leaves = state_tree.pack(value)
    return skeleton, {name: (leaf.dtype, leaf.shape, bytes(leaf.data)) for name, leaf in leaves.items()}


def by_hand(case: dict[str, Any], project: Path) -> list[float]:
    """The rates of a torch optimizer with that scheduler and nothing else."""
    groups = [{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)], "lr": 0.2}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    spec = fill_late({name: value for name, value in case.items() if name not in ("unit", "monitor")}, TOTALS)
    scheduler = build(spec, project, optimizer=optimizer)
    optim = Optim(optimizer, scheduler, unit=case.get("unit", "step"), monitor=case.get("monitor"))
    return rates(optim, 12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["class"].rpartition(".")[2])
def test_a_scheduler_gives_the_rates_that_it_gives_alone(case: dict[str, Any], project: Path) -> None:
    """What is tried before the run, and a warm-up, leave no trace in the rates."""
    alone = rates(make(case, project)[1], 12)
    unload_project(project)
    assert alone == by_hand(case, project)
    unload_project(project)
    warm = make({**case, "warmup_steps": 3}, project)[1]
    unload_project(project)
    base = make(case, project)[1].lr
    climbing = [base * number / 4 for number in (1, 2, 3)]
    if warm.unit == "step":
        assert rates(warm, 15) == pytest.approx([*climbing, *alone], abs=0, rel=1e-15)
    else:
        expected = [rate * min(1.0, number / 4) for number, rate in enumerate(alone, 1)]
        assert rates(warm, 12) == pytest.approx(expected, abs=0, rel=1e-15)


# --- the warm-up ----------------------------------------------------------------------------------------


def test_a_warm_up_climbs_then_the_scheduler_begins() -> None:
    _, optim = make({"class": HOME + "StepLR", "step_size": 2, "gamma": 0.1, "warmup_steps": 4})
    assert rates(optim, 8) == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.01, 0.01, 0.001])
    assert all(LR_SCALE not in group for group in optim.optimizer.param_groups)


def test_a_warm_up_by_steps_beside_a_scheduler_by_epochs() -> None:
    _, optim = make(
        {"class": HOME + "StepLR", "step_size": 1, "gamma": 0.1, "unit": "epoch", "warmup_steps": 3}
    )
    assert rates(optim, 6) == pytest.approx([0.025, 0.05, 0.0075, 0.01, 0.001, 0.001, 0.0001])


def test_a_warm_up_times_lr_scale() -> None:
    scheduler = {"class": HOME + "ConstantLR", "factor": 1.0, "warmup_steps": 1}
    groups = [{"params": "*.bias", "lr_scale": 0.1}]
    _, optim = make(scheduler, lr_scale=0.5, groups=groups)
    scales = [[group[LR_SCALE] for group in optim.optimizer.param_groups]]
    turn(optim, 0)
    scales.append([group[LR_SCALE] for group in optim.optimizer.param_groups])
    assert scales == [[0.25, 0.05], [0.5, 0.1]]


@pytest.mark.parametrize(("steps", "said"), [(19, ""), (20, "optimizers.main.scheduler.warmup_steps")])
def test_a_warm_up_as_long_as_the_run_is_reported(
    steps: int, said: str, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    make({"class": HOME + "StepLR", "step_size": 2, "warmup_steps": steps})
    shown = capsys.readouterr().out
    assert shown.startswith(said and f"warning: {said}") and shown.count("\n") == bool(said)
    assert re.findall(r"\b\d+\b", shown) == (["20", "20"] if said else [])
    messages.check(shown)


def test_the_state_of_another_scheduler_is_refused(messages: Messages) -> None:
    plain = {"class": HOME + "StepLR", "step_size": 2}
    _, optim = make({**plain, "warmup_steps": 3})
    with pytest.raises(CheckpointError) as refused:
        optim.load_state_dict(make(plain)[1].state_dict())
    messages.check(refused.value)


def test_a_scheduler_may_step_first() -> None:
    """Beside an optimizer that is not due yet, and after a validation that a stop had cut. Torch warns about
    it otherwise; warnings are errors here."""
    scheduler = {"class": HOME + "ExponentialLR", "gamma": 0.5, "unit": "validation"}
    _, first = make(scheduler, every_n_steps=3)
    first.scheduler.step()
    _, second = make(scheduler)
    second.load_state_dict(first.state_dict())
    second.scheduler.step()
    assert second.lr == pytest.approx(0.025)


# --- what is refused before the run ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheduler", "setting", "facts"),
    [
        (
            {"class": HOME + "CosineAnnealingLR", "T_max": 0},
            "scheduler.T_max",
            ("torch.optim.lr_scheduler.CosineAnnealingLR", "optimizer, T_max, eta_min=0.0, last_epoch=-1"),
        ),
        ({"class": HOME + "StepLR", "step_size": 0}, "scheduler.step_size", ()),
        (
            {"class": HOME + "StepLR", "step_size": "3"},
            "scheduler.step_size",
            ("'3'", "optimizer, step_size, gamma="),
        ),
        ({"class": HOME + "StepLR", "step_size": 2.5}, "scheduler.step_size", ()),
        ({"class": HOME + "StepLR", "step_size": True}, "scheduler.step_size", ()),
        ({"class": HOME + "ExponentialLR", "gamma": "0.9"}, "scheduler.gamma", ("'0.9'",)),
        ({"class": HOME + "ExponentialLR", "gamma": -0.9}, "scheduler.gamma", ()),
        ({"class": HOME + "ExponentialLR", "gamma": float("inf")}, "scheduler.gamma", ()),
        ({"class": HOME + "MultiStepLR", "milestones": 5}, "scheduler.milestones", ()),
        ({"class": HOME + "MultiStepLR", "milestones": ["5"]}, "scheduler.milestones", ()),
        ({"class": HOME + "LinearLR", "start_factor": 0}, "scheduler.start_factor", ()),
        (
            {"class": HOME + "CyclicLR", "base_lr": 0.1, "max_lr": 0.2, "mode": "up"},
            "scheduler.mode",
            ("'triangular'", "'triangular2'", "'exp_range'", "'up'"),
        ),
        (
            {"class": HOME + "CyclicLR", "base_lr": 0.1, "max_lr": 0.2, "step_size_up": 0},
            "scheduler.step_size_up",
            (),
        ),
        ({"class": HOME + "LambdaLR", "lr_lambda": 0.5}, "scheduler.lr_lambda", ()),
        (
            {"class": HOME + "LambdaLR", "lr_lambda": "Schedules.py:naom"},
            "scheduler.lr_lambda",
            ("'naom'", "'Schedules.py:naom'"),
        ),
        ({"class": HOME + "LambdaLR", "lr_lambda": "Schedules.py:nan"}, "scheduler.lr_lambda", ()),
        (
            {"class": HOME + "LambdaLR", "lr_lambda": ["Schedules.py:noam"]},
            "scheduler.lr_lambda",
            ("torch.optim.lr_scheduler.LambdaLR", "2"),
        ),
        ({"class": HOME + "LRScheduler"}, "scheduler", ("torch.optim.lr_scheduler.LRScheduler",)),
        ({"class": HOME + "StepLR"}, "scheduler.class", ("torch.optim.lr_scheduler.StepLR",)),
        ({"class": HOME + "StepLR", "gama": 1}, "scheduler.gama", ("torch.optim.lr_scheduler.StepLR",)),
        ({"class": "torch.optim.Adam"}, "scheduler.class", ("torch.optim.Adam", "'optimizer'")),
        ({"class": "torch.optim.StepLR", "step_size": 2}, "scheduler.class", ("torch.optim", "'StepLR'")),
        ({"class": "StepLR", "step_size": 2}, "scheduler.class", ("'StepLR'",)),
        ({"class": "Schedules.py:noam", "step": 1}, "scheduler.class", ("Schedules.py", "'optimizer'")),
        ({"class": "Schedules.py:Unrelated", "scheduler": 1, "steps": 1, "waits": True}, "scheduler", ()),
        ({"class": HOME + "ReduceLROnPlateau"}, "scheduler", ("ReduceLROnPlateau",)),
        ({"class": HOME + "ReduceLROnPlateau", "unit": "validation"}, "scheduler", ("ReduceLROnPlateau",)),
        (
            {"class": HOME + "StepLR", "step_size": 1, "unit": "validation", "monitor": "valid/loss"},
            "scheduler.monitor",
            ("StepLR", "'valid/loss'"),
        ),
        (
            {"class": HOME + "StepLR", "step_size": 1, "lr_scale": 0.1},
            "scheduler.lr_scale",
            ("0.1", "optimizers.main.lr_scale"),
        ),
        ({"class": HOME + "StepLR", "step_size": 1, "max_grad_norm": 1}, "scheduler.max_grad_norm", ()),
        (
            {"class": HOME + "OneCycleLR", "max_lr": 0.1, "total_steps": 19},
            "scheduler",
            ("OneCycleLR", "19", "20"),
        ),
        (
            {"class": HOME + "OneCycleLR", "max_lr": 0.1, "total_steps": 3, "unit": "epoch"},
            "scheduler",
            ("OneCycleLR", "3", "4"),
        ),
        (
            {**SEQUENCE, "schedulers": [CHAIN[0], {"class": HOME + "ChainedScheduler", "schedulers": CHAIN}]},
            "scheduler.schedulers.1",
            ("SequentialLR",),
        ),
        (
            {**SEQUENCE, "schedulers": [CHAIN[0], {"class": HOME + "CosineAnnealingLR", "T_max": 0}]},
            "scheduler.schedulers.1.T_max",
            ("torch.optim.lr_scheduler.CosineAnnealingLR",),
        ),
        (
            {**SEQUENCE, "schedulers": [CHAIN[0], {"class": HOME + "StepLR", "step_sise": 1}]},
            "scheduler.schedulers.1.step_sise",
            ("torch.optim.lr_scheduler.StepLR", "'step_sise'"),
        ),
        ({**SEQUENCE, "milestones": [1, 2]}, "scheduler", ("torch.optim.lr_scheduler.SequentialLR",)),
        ({**SEQUENCE, "schedulers": []}, "scheduler", ("torch.optim.lr_scheduler.SequentialLR",)),
        (
            {"class": HOME + "ChainedScheduler", "schedulers": [{"class": HOME + "ReduceLROnPlateau"}]},
            "scheduler.schedulers",
            ("torch.optim.lr_scheduler.ChainedScheduler",),
        ),
    ],
)
def test_a_scheduler_that_would_fail(
    scheduler: dict[str, Any], setting: str, facts: tuple[str, ...], project: Path, messages: Messages
) -> None:
    asked = settings(
        main={"class": "torch.optim.SGD", "lr": 0.1, "groups": [{"params": "*.bias"}], "scheduler": scheduler}
    )
    with pytest.raises(ConfigError) as caught:
        build_optimizers(Net(), asked, totals=TOTALS, root=project, where=lambda key: f"line of {key}")
    refused, said = caught.value, str(caught.value)
    assert refused.setting == f"optimizers.main.{setting}"
    assert refused.where in (None, f"line of {refused.setting}", f"line of {refused.setting}.class")
    assert all(fact in said for fact in facts), said
    messages.check(said.partition("its arguments: ")[0])  # those follow torch's version


@pytest.mark.parametrize(
    ("scheduler", "given", "fact"),
    [
        (lr_scheduler.ReduceLROnPlateau, {"unit": "epoch"}, "ReduceLROnPlateau"),
        (
            lambda optimizer: Warmup(lr_scheduler.ReduceLROnPlateau(optimizer), optimizer, 3, waits=False),
            {"unit": "validation"},
            "ReduceLROnPlateau",
        ),
        (
            lambda optimizer: lr_scheduler.StepLR(optimizer, 1),
            {"unit": "validation", "monitor": "valid/loss"},
            "'valid/loss'",
        ),
        (lr_scheduler.ReduceLROnPlateau, {"unit": "validation", "monitor": "valid/loss"}, None),
        (lambda optimizer: None, {}, None),
    ],
)
def test_schedulers_made_by_hand(
    scheduler: Any, given: dict[str, Any], fact: str | None, messages: Messages
) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    optims = {"a": Optim(optimizer, scheduler(optimizer), **given)}
    if fact is None:
        check_schedules(optims)
        return
    with pytest.raises(ConfigError, match=fact) as refused:
        check_schedules(optims)
    place = "Runner.optimizers()['a']"
    assert refused.value.setting == (f"{place}.monitor" if fact == "'valid/loss'" else place)
    messages.check(refused.value)


def test_an_error_of_the_projects_own_function_passes_through(project: Path) -> None:
    with pytest.raises(KeyError):
        make({"class": HOME + "LambdaLR", "lr_lambda": "Schedules.py:failing"}, project)


def test_a_cycle_as_long_as_the_run_is_taken(project: Path) -> None:
    cycle = {"class": HOME + "OneCycleLR", "max_lr": 0.1}
    for given in (
        {"total_steps": 20},
        {"total_steps": 15, "warmup_steps": 5},
        {"total_steps": 4, "unit": "epoch"},
    ):
        _, optim = make({**cycle, **given})
        assert len(rates(optim, 8 if optim.unit == "epoch" else 20)) in (9, 21)
