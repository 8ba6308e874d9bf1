from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from roost.base import state_tree
from roost.base.errors import CheckpointError, ConfigError
from roost.config.objects import unload_project
from roost.config.sections.optimizers import OptimizerSettings
from roost.config.settings import parse_settings
from roost.train.optim.optimizer import LR_SCALE, Optim
from roost.train.optim.optimizer_config import build_optimizers, describe_optimizers
from tests.messages import Messages
from tests.train.parts import bits

TOTALS = {"total_steps": 20, "steps_per_epoch": 5}


class Net(nn.Module):
    """Parameters: body.0.weight, body.0.bias, body.1.weight, body.1.bias, head.weight, head.bias."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
        self.head = nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x))


def settings(**optimizers: Any) -> dict[str, OptimizerSettings]:
    values = {"runner": "a.py:A", "dataset": "b.py:B", "max_steps": 20, "optimizers": optimizers}
    return parse_settings(values).optimizers


def make(module: nn.Module | None = None, **optimizers: Any) -> dict[str, Optim]:
    return build_optimizers(module or Net(), settings(**optimizers), totals=TOTALS)


SCHEDULER = "torch.optim.lr_scheduler."
SGD = {"class": "torch.optim.SGD", "lr": 0.1}


def names(module: nn.Module, group: dict[str, Any]) -> set[str]:
    of = {id(parameter): name for name, parameter in module.named_parameters()}
    return {of[id(parameter)] for parameter in group["params"]}


def test_groups_the_first_match_wins_and_the_rest_comes_first() -> None:
    module = Net()
    groups = [{"params": ["*.bias"], "weight_decay": 0}, {"params": "body.*", "lr": 0.01}]
    optim = make(
        module, main={"class": "torch.optim.AdamW", "lr": 0.1, "weight_decay": 0.5, "groups": groups}
    )["main"]
    assert isinstance(optim.optimizer, torch.optim.AdamW)
    rest, biases, body = optim.optimizer.param_groups
    assert names(module, rest) == {"head.weight"}
    assert names(module, biases) == {"body.0.bias", "body.1.bias", "head.bias"}
    assert names(module, body) == {"body.0.weight", "body.1.weight"}
    assert [(g["lr"], g["weight_decay"]) for g in (rest, biases, body)] == [(0.1, 0.5), (0.1, 0), (0.01, 0.5)]
    assert len(optim.parameters) == 6


def test_several_optimizers_share_the_parameters() -> None:
    module = Net()
    found = make(module, a={**SGD, "params": "body.*", "max_grad_norm": 2.0}, b={**SGD, "params": ["head.*"]})
    assert names(module, found["a"].optimizer.param_groups[0]) == {
        f"body.{n}.{w}" for n in "01" for w in ("weight", "bias")
    }
    assert found["a"].max_grad_norm == 2.0 and found["b"].max_grad_norm is None


def test_frozen_parameters_belong_to_no_optimizer(messages: Messages) -> None:
    module = Net()
    module.head.requires_grad_(False)
    assert len(make(module, main={**SGD, "params": "body.*"})["main"].parameters) == 4
    with pytest.raises(ConfigError, match=r"'head\.\*'") as refused:
        make(module, main={**SGD, "params": "head.*"})
    messages.check(refused.value)
    module.body.requires_grad_(False)
    with pytest.raises(ConfigError, match=r"Runner\.build") as refused:
        make(module, main=SGD)
    messages.check(refused.value)


ADAM = {"class": "torch.optim.AdamW"}


REFUSED: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({}, "optimizers", ("optimizers: {main: ",)),
    ({"a": {**SGD, "params": "bodi.*"}}, "optimizers.a.params", ("'bodi.*'", "'body.*'", "body.0.weight")),
    ({"a": {**SGD, "params": ["*", "nose"]}}, "optimizers.a.params", ("'nose'",)),
    ({"a": {**SGD, "params": []}}, "optimizers.a.params", ("[]",)),
    ({"a": {**SGD, "groups": [{"params": "nose"}]}}, "optimizers.a.groups.0.params", ("'nose'",)),
    (
        {"a": SGD, "b": {**SGD, "params": "head.*"}},
        "optimizers.b.params",
        ("2", "'a'", "'b'", "head.weight", "head.bias"),
    ),
    (
        {"a": {**SGD, "params": "body.*"}, "b": {**SGD, "params": "head.weight"}},
        "optimizers",
        ("1", "head.bias"),
    ),
    ({"a": {**SGD, "params": "*.weight"}}, "optimizers", ("3", "body.0.bias", "body.1.bias", "head.bias")),
    (
        {"a": {**SGD, "momentun": 0.9}},
        "optimizers.a.momentun",
        ("torch.optim.SGD", "'momentun'", "0.9", "'momentum'", "params, lr="),
    ),
    (
        {"a": {"class": "torch.optim.AdamW", "learning_rate": 0.1}},
        "optimizers.a.learning_rate",
        ("torch.optim.AdamW", "'learning_rate'", "0.1", "'lr'", "params, lr="),
    ),
    ({"a": {**SGD, "grad_clip": 1}}, "optimizers.a.grad_clip", ("1", "optimizers.a.max_grad_norm")),
    (
        {"a": {**SGD, "groups": [{"params": "*", "wd": 0}]}},
        "optimizers.a.groups.0.wd",
        ("torch.optim.SGD", "'wd'", "0", "'weight_decay'"),
    ),
    ({"a": {**SGD, "lr": -1.0}}, "optimizers.a.lr", ("torch.optim.SGD", "-1.0")),
    ({"a": {**SGD, "nesterov": "no"}}, "optimizers.a.nesterov", ("'no'",)),
    ({"a": {**SGD, "lr": True}}, "optimizers.a.lr", ("True",)),
    ({"a": {**SGD, "lr": None}}, "optimizers.a.lr", ("None",)),
    ({"a": {**ADAM, "betas": "0.9, 0.9"}}, "optimizers.a.betas", ("2",)),
    ({"a": {**ADAM, "betas": [0.9, 1.5]}}, "optimizers.a.betas", ("torch.optim.AdamW",)),
    ({"a": {**ADAM, "amsgrad": "no"}}, "optimizers.a.amsgrad", ("'no'",)),
    ({"a": {"class": "torch.optim.Adamm"}}, "optimizers.a.class", ("torch.optim", "'Adamm'")),
    ({"a": {"class": "torch.optim.Optimizer"}}, "optimizers.a.class", ("torch.optim.Optimizer",)),
    ({"a": {"class": "torch.nn.Linear"}}, "optimizers.a.class", ("torch.nn.Linear", "'params'")),
    ({"a": {**ADAM, "fused": True, "foreach": True}}, "optimizers.a", ("torch.optim.AdamW",)),
    ({"a": {"class": "torch.optim.RMSprop", "fused": True}}, "optimizers.a.fused", ("torch.optim.RMSprop",)),
    ({"a": {**SGD, "lr": -1, "groups": [{"params": "*", "momentum": 0}]}}, "optimizers.a.lr", ()),
    (
        {"a": {**SGD, "groups": [{"params": "*", "weigt_decay": 0}]}},
        "optimizers.a.groups.0.weigt_decay",
        ("torch.optim.SGD", "'weigt_decay'", "0"),
    ),
    ({"a": {**SGD, "groups": [{"params": "*", "lr": -1}]}}, "optimizers.a.groups.0.lr", ("torch.optim.SGD",)),
    ({"a": {**SGD, "groups": [{"params": "*", "lr": "1"}]}}, "optimizers.a.groups.0.lr", ()),
    ({"a": {**SGD, "groups": [{"params": "*", "unit": 3}]}}, "optimizers.a.groups.0.unit", ()),
    (
        {"a": {**SGD, "groups": [{"params": "*", "max_grad_norm": 1.0}]}},
        "optimizers.a.groups.0.max_grad_norm",
        ("1.0", "optimizers.a.max_grad_norm"),
    ),
    (
        {"a": {**SGD, "warmup_steps": 3}},
        "optimizers.a.warmup_steps",
        ("3", "optimizers.a.scheduler.warmup_steps"),
    ),
    (
        {"a": {"class": "torch.optim.LBFGS", "groups": [{"params": "*.bias"}]}},
        "optimizers.a.groups",
        ("torch.optim.LBFGS",),
    ),
    (
        {"a": {"class": "torch.optim.Muon"}},
        "optimizers.a.params",
        ("torch.optim.Muon", "body.0.bias", "body.1.weight", "body.1.bias", "head.bias"),
    ),
    ({"a": {"class": "torch.optim.SparseAdam"}}, "optimizers.a.params", ("torch.optim.SparseAdam",)),
]


@pytest.mark.parametrize(("optimizers", "setting", "facts"), REFUSED)
def test_what_cannot_be_built(
    optimizers: dict[str, Any], setting: str, facts: tuple[str, ...], messages: Messages
) -> None:
    asked = settings(**optimizers)
    with pytest.raises(ConfigError) as caught:
        build_optimizers(Net(), asked, totals=TOTALS, where=lambda key: f"line of {key}")
    said = str(caught.value)
    assert caught.value.setting == setting
    assert caught.value.where in (None, f"line of {setting}", f"line of {setting}.class")
    assert all(fact in said for fact in facts), said
    messages.check(said.partition("its arguments: ")[0])  # those follow torch's version


@pytest.mark.parametrize(
    ("optimizer", "setting", "fact"),
    [
        ({**SGD, "every_n_steps": 0}, "every_n_steps", "0"),
        ({**SGD, "every_n_steps": 1.5}, "every_n_steps", "1.5"),
        ({**SGD, "lr_scale": 0}, "lr_scale", "0"),
        ({**SGD, "lr_scale": "x"}, "lr_scale", "'x'"),
        ({**SGD, "max_grad_norm": -1}, "max_grad_norm", "-1"),
        ({**SGD, "fused": "yes"}, "fused", "'yes'"),
        ({**SGD, "groups": {"params": "*"}}, "groups", "{'params': '*'}"),
        ({**SGD, "groups": [{"lr": 1}]}, "groups.0.params", ""),
        ({**SGD, "scheduler": "StepLR"}, "scheduler", "'StepLR'"),
        ({**SGD, "scheduler": {}}, "scheduler.class", ""),
        (
            {**SGD, "scheduler": {"class": "x", "unit": "batch"}},
            "scheduler.unit",
            "'step' or 'epoch' or 'validation'",
        ),
        ({"lr": 0.1}, "class", ""),
        ("torch.optim.SGD", "", "'torch.optim.SGD'"),
    ],
)
def test_what_the_settings_refuse(optimizer: Any, setting: str, fact: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(main=optimizer)
    assert caught.value.setting == f"optimizers.main.{setting}".rstrip(".") and fact in str(caught.value)
    messages.check(caught.value)


def test_many_names_are_counted_after_twenty(messages: Messages) -> None:
    module = nn.ModuleList([nn.Linear(1, 1) for _ in range(20)])
    with pytest.raises(ConfigError, match=r"\b39\b.*\b0\.bias, .*, 10\.weight\b.*\b19\b") as refused:
        make(module, main={**SGD, "params": "0.weight"})
    messages.check(refused.value)


@pytest.mark.parametrize("place", ["scheduler.T_max", "groups.0.lr", "momentum"])
def test_time_alone_gives_no_total_steps(place: str, messages: Messages) -> None:
    main: dict[str, Any] = {**SGD, "scheduler": {"class": SCHEDULER + "CosineAnnealingLR", "T_max": 3}}
    main["groups"] = [{"params": "body.*", "lr": 0.1}]
    around: Any = main
    *sections, name = place.split(".")
    for section in sections:
        around = around[int(section) if section.isdigit() else section]
    around[name] = "${total_steps}"
    with pytest.raises(ConfigError, match=r"total_steps.*max_time.*max_steps.*max_epochs") as refused:
        build_optimizers(
            Net(), settings(main=main), totals={"steps_per_epoch": 5}, where=lambda key: "config.yaml:9"
        )
    assert (refused.value.setting, refused.value.where) == (f"optimizers.main.{place}", "config.yaml:9")
    messages.check(refused.value)


def test_fused_where_there_is_a_kernel() -> None:
    adam = {"class": "torch.optim.AdamW"}
    assert make(main=adam)["main"].optimizer.defaults["fused"] is True
    assert make(main={**adam, "fused": False})["main"].optimizer.defaults["fused"] is False
    assert make(main={**adam, "foreach": True})["main"].optimizer.defaults["fused"] in (None, False)
    assert make(main={**SGD, "fused": True})["main"].optimizer.defaults["fused"] is True
    assert "fused" not in make(main={"class": "torch.optim.RMSprop"})["main"].optimizer.defaults


def test_a_parameter_that_has_its_first_gradient_later_than_others() -> None:
    """As in stochastic depth; torch's fused SGD with momentum raises there, so auto does not take it."""
    net = Net()
    optim = make(net, main={**SGD, "momentum": 0.9})["main"]
    first, later, *_ = net.parameters()
    before = later.detach().clone()
    first.grad = torch.ones_like(first)
    optim.take_step()
    later.grad = torch.ones_like(later)
    optim.take_step()
    assert torch.equal(later, before - 0.1)


# --- groups, rates, intervals ---------------------------------------------------------------------------


def test_lr_scale_of_a_group_replaces_that_of_the_optimizer() -> None:
    groups = [{"params": "body.0.*", "lr_scale": 0.1}, {"params": "body.1.*", "lr_scale": 1.0, "lr": 0.5}]
    optim = make(main={**SGD, "lr_scale": 0.5, "groups": groups, "every_n_steps": 3})["main"]
    assert [group.get(LR_SCALE) for group in optim.optimizer.param_groups] == [0.5, 0.1, None]
    assert optim.lr == 0.05 and optim.every_n_steps == 3
    assert LR_SCALE not in make(main=SGD)["main"].optimizer.param_groups[0], "no factor, no cost"


def test_a_group_whose_parameters_are_all_taken_is_reported(
    capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    groups = [{"params": "*.bias", "lr": 0.2}, {"params": "head.bias", "lr": 0.3}]
    optim = make(main={**SGD, "groups": groups})["main"]
    assert [group["lr"] for group in optim.optimizer.param_groups] == [0.1, 0.2]
    said = capsys.readouterr().out
    assert said.startswith("warning: optimizers.main.groups.1.params: ") and "head.bias" in said
    assert said.count("\n") == 1
    messages.check(said)


def test_arguments_of_a_group_come_as_the_class_wants_them() -> None:
    groups = [{"params": "*.bias", "betas": [0.5, 0.6], "lr": "${steps_per_epoch}"}]
    optim = make(main={**ADAM, "betas": [0.8, 0.9], "groups": groups})["main"]
    first, second = optim.optimizer.param_groups
    assert (first["betas"], second["betas"], second["lr"]) == ((0.8, 0.9), (0.5, 0.6), 5)


def test_a_shared_parameter_answers_to_each_of_its_names() -> None:
    module = Net()
    module.tied = nn.Linear(4, 1)
    module.tied.weight = module.head.weight
    groups = [{"params": "tied.*", "lr": 0.2}]
    _, group = make(module, main={**SGD, "groups": groups})["main"].optimizer.param_groups
    assert names(module, group) == {"head.weight", "tied.bias"}


# --- any optimizer --------------------------------------------------------------------------------------

EVERY: dict[str, list[dict[str, Any]]] = {
    "ASGD": [{}, {"foreach": True, "t0": 3}],
    "Adadelta": [{}],
    "Adafactor": [{}, {"eps": [None, 0.01]}],
    "Adagrad": [{}, {"lr_decay": 0.1, "fused": False}],
    "Adam": [{}, {"amsgrad": True, "betas": [0.8, 0.9]}, {"fused": False, "foreach": True}],
    "AdamW": [{"weight_decay": 0.1, "fused": True}, {"fused": False}],
    "Adamax": [{}],
    "LBFGS": [{"max_iter": 3}, {"max_iter": 2, "history_size": 2, "line_search_fn": "strong_wolfe"}],
    "Muon": [{"ns_coefficients": [3.4, -4.7, 2.0]}, {"nesterov": False}],
    "NAdam": [{}, {"decoupled_weight_decay": True, "weight_decay": 0.1}],
    "RAdam": [{}],
    "RMSprop": [{"centered": True, "momentum": 0.9}],
    "Rprop": [{"etas": [0.4, 1.3]}],
    "SGD": [{"momentum": 0.9, "nesterov": True}, {"fused": False, "maximize": True}],
    "SparseAdam": [{"betas": [0.8, 0.9]}],
}


class Kernel(nn.Module):
    """One matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Table(nn.Module):
    """One embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows = nn.Embedding(4, 3, sparse=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows((x.abs() * 10).long() % 4)


def test_every_optimizer_of_torch_is_here() -> None:
    found = {name for name, one in vars(torch.optim).items() if inspect.isclass(one) and name[0].isupper()}
    assert found - {"Optimizer"} == EVERY.keys()


def module_for(name: str) -> nn.Module:
    return {"Muon": Kernel, "SparseAdam": Table}.get(name, Net)()


def go(module: nn.Module, optim: Optim, steps: range) -> None:
    dtype = next(module.parameters()).dtype
    for step in steps:

        def gradients(step: int = step) -> torch.Tensor:
            optim.clear()
            loss: torch.Tensor = module(torch.full((2, 3), 0.1 * step + 0.1, dtype=dtype)).square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        with optim.scaled_rates():
            if optim.needs_closure:
                optim.optimizer.step(gradients)  # type: ignore[arg-type]
            else:
                gradients()
                optim.optimizer.step()


CASES = [{"class": f"torch.optim.{name}", **one} for name, several in EVERY.items() for one in several]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["class"].rpartition(".")[2])
def test_an_optimizer_goes_on_exactly(case: dict[str, Any], dtype: torch.dtype) -> None:
    """Built, stepped, its state through the codec of checkpoints; NAdam and ASGD keep float32 counters."""
    name = case["class"].rpartition(".")[2]
    if name == "SparseAdam" and dtype is torch.bfloat16:
        return  # torch adds no sparse bf16 on a CPU

    def made() -> tuple[nn.Module, Optim]:
        module = module_for(name).to(dtype)
        return module, make(module, main={**case, "lr": 0.01, "lr_scale": 0.5})["main"]

    whole, first, second = made(), made(), made()
    go(*whole, range(12))
    go(*first, range(5))
    state = state_tree.unpack(
        *state_tree.pack({"model": first[0].state_dict(), "optim": first[1].state_dict()})
    )
    second[0].load_state_dict(state["model"])
    second[1].load_state_dict(state["optim"])
    go(*second, range(5, 12))
    assert bits(dict(whole[0].state_dict())) != bits(dict(first[0].state_dict())), "it moves"
    assert bits(dict(second[0].state_dict())) == bits(dict(whole[0].state_dict()))
    assert bits(second[1].state_dict()) == bits(whole[1].state_dict())


def test_sparse_gradients(messages: Messages) -> None:
    class Both(Net):
        def __init__(self) -> None:
            super().__init__()
            self.table = Table()
            self.extra = nn.ParameterList([torch.ones(2)])  # for whatever use

    sparse, rest = {"params": ["table.*", "extra.*"]}, {"params": ["body.*", "head.*"]}
    adagrad = {"class": "torch.optim.Adagrad"}
    found = make(Both(), a={**adagrad, **sparse}, b={**adagrad, **rest})
    fused = [found[name].optimizer.defaults["fused"] for name in "ab"]
    assert fused == [None, True], "the fused kernel takes no sparse gradients"
    make(Both(), a={"class": "torch.optim.SparseAdam", **sparse}, b={**ADAM, **rest})
    with pytest.raises(ConfigError, match=r"AdamW.*table\.rows\.weight") as refused:
        make(Both(), a=ADAM)
    assert refused.value.setting == "optimizers.a.params"
    messages.check(refused.value)


OPTIM = '''
import torch


class MyAdam(torch.optim.Adam):
    """Has an argument of its own, and a number for each parameter in its state."""

    def __init__(self, params, lr=0.1, *, shrink=0.9, fused=False):
        assert not fused, "not requested"
        super().__init__(params, lr=lr)
        self.shrink = shrink

    def step(self, closure=None):
        super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(self.shrink)
                    self.state[p]["seen"] = self.state[p].get("seen", 0) + 1


class Mixed(torch.optim.Optimizer):
    """Everything is in its groups, and they have another name."""

    def __init__(self, param_groups):
        super().__init__(param_groups, {})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-group["lr"] * (2 if group["twice"] else 1))


class Lookahead(torch.optim.Optimizer):
    def __init__(self, params, inner):
        self.inner = inner
        super().__init__(params, {"lr": 0.1})


def none(params):
    return None
'''


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "Optim.py").write_text(OPTIM)
    yield tmp_path
    unload_project(tmp_path)


def test_an_optimizer_of_the_project(project: Path) -> None:
    def made() -> tuple[nn.Module, Optim]:
        module = Net()
        asked = settings(main={"class": "Optim.py:MyAdam", "shrink": 0.5})
        return module, build_optimizers(module, asked, totals=TOTALS, root=project)["main"]

    whole, first, second = made(), made(), made()
    go(*whole, range(6))
    go(*first, range(3))
    state = state_tree.unpack(
        *state_tree.pack({"model": first[0].state_dict(), "optim": first[1].state_dict()})
    )
    second[0].load_state_dict(state["model"])
    second[1].load_state_dict(state["optim"])
    go(*second, range(3, 6))
    assert bits(second[1].state_dict()) == bits(whole[1].state_dict())
    assert next(iter(second[1].optimizer.state.values()))["seen"] == 6


def test_other_optimizers_of_the_project(project: Path, messages: Messages) -> None:
    groups = [{"params": "head.*", "lr": 0.1, "twice": True}, {"params": "*", "lr": 0.2, "twice": False}]
    asked = settings(main={"class": "Optim.py:Mixed", "groups": groups})
    optim = build_optimizers(Net(), asked, totals=TOTALS, root=project)["main"]
    assert [(group["lr"], group["twice"]) for group in optim.optimizer.param_groups] == [
        (0.1, True),
        (0.2, False),
    ]
    asked = settings(main={"class": "Optim.py:Lookahead", "inner": {"class": "torch.optim.SGD", "lr": 0.3}})
    optim = build_optimizers(Net(), asked, totals=TOTALS, root=project)["main"]
    inner = optim.optimizer.inner  # type: ignore[attr-defined]
    assert inner.defaults["lr"] == 0.3 and inner.param_groups[0]["params"] == optim.parameters
    with pytest.raises(ConfigError, match=r"'Optim\.py:none'") as refused:
        build_optimizers(Net(), settings(main={"class": "Optim.py:none"}), totals=TOTALS, root=project)
    assert refused.value.setting == "optimizers.main.class"
    messages.check(refused.value)


def test_a_state_of_other_parameters_is_refused(messages: Messages) -> None:
    state = make(main=SGD)["main"].state_dict()
    other = make(main={**SGD, "groups": [{"params": "*.bias", "lr": 0.2}]})["main"]
    with pytest.raises(CheckpointError) as refused:
        other.load_state_dict(state)
    messages.check(refused.value)


# --- what is printed at the start --------------------------------------------------------------------------


def test_one_optimizer_with_one_group_is_not_worth_a_line() -> None:
    assert describe_optimizers(make(main=SGD)) == []


def test_each_optimizer_has_a_line(messages: Messages) -> None:
    scheduler = {"class": SCHEDULER + "StepLR", "step_size": 2, "unit": "epoch", "warmup_steps": 10}
    groups = [{"params": "*.bias", "weight_decay": 0, "lr_scale": 0.1}, {"params": "body.1.*"}]
    a = {"class": "torch.optim.RMSprop", "lr": 0.5, "weight_decay": 0.1, "params": "body.*", "groups": groups}
    found = make(a={**a, "scheduler": scheduler, "every_n_steps": 2}, b={**SGD, "params": "head.*"})
    lines = describe_optimizers(found)
    numbers = [re.findall(r"\b\d[\d.]*\b", line) for line in lines]
    assert numbers == [["24", "8", "0", "0.05", "4", "0.5", "10", "2"], ["5", "0.1"]]
    first = r"optimizer a\b.*RMSprop.*\bweight_decay 0\b.*\blr 0\.05\b.*\blr 0\.5\b.*StepLR.*\bepoch\b"
    assert re.match(first, lines[0]) and re.match(r"optimizer b\b.*SGD.*\blr 0\.1\b", lines[1])
    messages.check("\n".join(lines))
