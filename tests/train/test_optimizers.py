from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from roost.base import tree
from roost.base.errors import CheckpointError, ConfigError
from roost.config.settings import OptimizerSettings, typed
from roost.train.optimizers import Optim, build_optimizers
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
    return typed(values).optimizers


def make(module: nn.Module | None = None, **optimizers: Any) -> dict[str, Optim]:
    return build_optimizers(module or Net(), settings(**optimizers), totals=TOTALS)


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


def test_frozen_parameters_belong_to_nobody() -> None:
    module = Net()
    module.head.requires_grad_(False)
    assert len(make(module, main={**SGD, "params": "body.*"})["main"].parameters) == 4
    with pytest.raises(ConfigError, match="matches no parameter"):
        make(module, main={**SGD, "params": "head.*"})
    module.body.requires_grad_(False)
    with pytest.raises(ConfigError, match=r"no trainable parameter.*Runner\.build"):
        make(module, main=SGD)


@pytest.mark.parametrize(
    ("optimizers", "message"),
    [
        ({}, r"optimizers: there is no optimizer.*Runner\.optimizers"),
        (
            {"main": {**SGD, "params": "bodi.*"}},
            r"optimizers\.main\.params.*received 'bodi\.\*'.*body\.0\.weight",
        ),
        ({"main": {**SGD, "params": ["*", "nose"]}}, r"received 'nose'"),
        ({"main": {**SGD, "groups": [{"params": "nose"}]}}, r"optimizers\.main\.groups\.0\.params.*'nose'"),
        ({"a": SGD, "b": {**SGD, "params": "head.*"}}, r"'head.weight' belongs to 'a' and to 'b'.*disjoint"),
        (
            {"main": {**SGD, "params": "body.*"}},
            r"2 parameters belong to no optimizer: head.weight, head.bias",
        ),
        ({"main": {**SGD, "momentun": 0.9}}, r"no argument 'momentun'"),
        ({"main": {**SGD, "lr": -1.0}}, r"Invalid learning rate"),
        ({"main": {"class": "torch.optim.Adamm"}}, r"Adam"),
        (
            {"main": {"class": "torch.optim.RMSprop", "fused": True}},
            r"^optimizers\.main\.fused: there is none.*remove it: torch.optim.RMSprop has no fused",
        ),
        ({"main": {"class": "torch.nn.Linear", "in_features": 2}}, r"^optimizers\.main\.class: .*'params'"),
    ],
)
def test_what_cannot_be_built(optimizers: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**optimizers)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (
            {**SGD, "lrr": 0.2},
            "lrr: torch.optim.SGD takes no argument 'lrr'; received 0.2 (at line of {}.lrr)",
        ),
        (
            {"class": "torch.optim.Adamm"},
            "class: torch.optim has no 'Adamm'; received 'torch.optim.Adamm' (at",
        ),
        (
            {**SGD, "params": "nose"},
            "params: the glob matches no parameter; received 'nose' (at line of {}.pa",
        ),
        ({**SGD, "groups": [{"params": "nose"}]}, "groups.0.params: the glob matches no parameter; received"),
        (
            {**SGD, "scheduler": {"class": "torch.optim.lr_scheduler.StepLR", "gama": 1}},
            "scheduler.gama: torch.optim.lr_scheduler.StepLR takes no argument 'gama'; received 1 (at",
        ),
        (
            {**SGD, "scheduler": {"class": "torch.optim.lr_scheduler.StepLR"}},
            "scheduler.class: torch.optim.lr_scheduler.StepLR needs the argument 'step_size' (at line of",
        ),
    ],
)
def test_errors_name_the_setting_and_its_place(optimizer: dict[str, Any], message: str) -> None:
    asked = settings(own=optimizer)
    with pytest.raises(ConfigError) as caught:
        build_optimizers(Net(), asked, totals=TOTALS, where=lambda key: f"line of {key}")
    assert str(caught.value).startswith("optimizers.own." + message.format("optimizers.own"))


def test_what_was_received_is_what_was_typed() -> None:
    with pytest.raises(
        ConfigError, match=r"^optimizers\.main: .*Invalid learning rate.*received {'lr': -1.0}"
    ):
        make(main={**SGD, "lr": -1.0})
    with pytest.raises(ConfigError, match=r"received {'lr': -1.0, 'fused': False}"):
        make(main={**SGD, "lr": -1.0, "fused": False})


@pytest.mark.parametrize("place", ["scheduler.T_max", "groups.0.lr", "momentum"])
def test_time_alone_gives_no_total_steps(place: str) -> None:
    main: dict[str, Any] = {**SGD, "scheduler": {"class": SCHEDULER + "CosineAnnealingLR", "T_max": 3}}
    main["groups"] = [{"params": "body.*", "lr": 0.1}]
    around: Any = main
    *sections, name = place.split(".")
    for section in sections:
        around = around[int(section) if section.isdigit() else section]
    around[name] = "${total_steps}"
    with pytest.raises(
        ConfigError,
        match=rf"optimizers\.main\.{place}: max_time gives no total_steps \(at config.yaml:9\)"
        r".*set max_steps or max_epochs",
    ):
        build_optimizers(
            Net(), settings(main=main), totals={"steps_per_epoch": 5}, where=lambda key: "config.yaml:9"
        )


def test_fused_where_there_is_a_kernel() -> None:
    assert make(main=SGD)["main"].optimizer.defaults["fused"] is True
    assert make(main={**SGD, "fused": False})["main"].optimizer.defaults["fused"] is False
    assert make(main={**SGD, "foreach": True})["main"].optimizer.defaults["fused"] in (None, False)
    assert "fused" not in make(main={"class": "torch.optim.RMSprop"})["main"].optimizer.defaults


SCHEDULER = "torch.optim.lr_scheduler."


def rates(optim: Optim, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        optim.optimizer.step()
        optim.scheduler.step()
        found.append(optim.optimizer.param_groups[0]["lr"])
    return found


def test_totals_are_filled_in() -> None:
    scheduler = {"class": SCHEDULER + "CosineAnnealingLR", "T_max": "${total_steps}"}
    optim = make(main={**SGD, "scheduler": scheduler})["main"]
    assert optim.scheduler.T_max == 20
    assert rates(optim, 20)[-1] == pytest.approx(0.0, abs=1e-9)
    assert (optim.unit, optim.monitor) == ("step", None)


def test_warm_up_climbs_then_the_scheduler_begins() -> None:
    scheduler = {"class": SCHEDULER + "StepLR", "step_size": 2, "gamma": 0.1, "warmup_steps": 4}
    optim = make(main={**SGD, "scheduler": scheduler})["main"]
    begin = optim.optimizer.param_groups[0]["lr"]
    assert [begin, *rates(optim, 7)] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize(
    ("steps", "said"), [(19, ""), (20, "optimizers.main.scheduler.warmup_steps is 20: ")]
)
def test_a_warm_up_as_long_as_the_run_is_told(
    steps: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(main={**SGD, "scheduler": {"class": SCHEDULER + "StepLR", "step_size": 2, "warmup_steps": steps}})
    shown = capsys.readouterr().out
    assert shown.startswith(said) and shown.count("\n") == bool(said)


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (
            {"class": SCHEDULER + "ReduceLROnPlateau"},
            r"optimizers\.main\.scheduler.*unit: validation and monitor",
        ),
        ({"class": SCHEDULER + "ReduceLROnPlateau", "unit": "validation"}, r"monitor: valid/loss"),
        (
            {"class": SCHEDULER + "StepLR", "step_size": 1, "unit": "epoch", "warmup_steps": 3},
            r"optimizers\.main\.scheduler\.warmup_steps: needs unit: step; received 'epoch'",
        ),
        ({"class": SCHEDULER + "StepLR"}, r"needs the argument 'step_size'"),
    ],
)
def test_schedulers_that_cannot_be_built(scheduler: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(main={**SGD, "scheduler": scheduler})


SCHEDULERS: list[dict[str, Any]] = [
    {"class": SCHEDULER + "StepLR", "step_size": 2, "warmup_steps": 3},
    {"class": SCHEDULER + "CosineAnnealingLR", "T_max": "${total_steps}"},
    {"class": SCHEDULER + "CosineAnnealingWarmRestarts", "T_0": 3, "warmup_steps": 2},
    {"class": SCHEDULER + "OneCycleLR", "max_lr": 0.2, "total_steps": "${total_steps}"},
    {"class": SCHEDULER + "CyclicLR", "base_lr": 0.1, "max_lr": 0.2, "step_size_up": 3},
    {"class": SCHEDULER + "ReduceLROnPlateau", "unit": "validation", "monitor": "valid/loss", "patience": 0},
]


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda scheduler: scheduler["class"].rpartition(".")[2])
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_state_survives_the_codec_and_goes_on_exactly(scheduler: dict[str, Any], kind: str) -> None:
    def made() -> tuple[Net, Optim]:
        module = Net()
        arguments = {"momentum": 0.9} if kind == "SGD" else {}
        main = {"class": f"torch.optim.{kind}", "lr": 0.1, "scheduler": scheduler, **arguments}
        return module, make(module, main=main)["main"]

    def go(module: Net, optim: Optim, steps: range) -> None:
        for step in steps:
            optim.optimizer.zero_grad()
            module(torch.full((2, 3), 0.1 * step)).sum().backward()
            optim.optimizer.step()
            metric = (1.0 + step % 3,) if optim.monitor else ()
            optim.scheduler.step(*metric)

    whole, first = made(), made()
    go(*whole, range(12))
    go(*first, range(5))
    skeleton, leaves = tree.pack({"model": first[0].state_dict(), "optim": first[1].state_dict()})
    state = tree.unpack(skeleton, leaves)
    second = made()
    second[0].load_state_dict(state["model"])
    second[1].load_state_dict(state["optim"])
    go(*second, range(5, 12))
    assert bits(dict(second[0].state_dict())) == bits(dict(whole[0].state_dict()))
    assert bits(second[1].state_dict()) == bits(whole[1].state_dict())


def test_a_scheduler_may_step_first_in_a_new_process() -> None:
    """After a validation that a stop had cut. Torch warns about it otherwise; warnings are errors here."""
    scheduler = {"class": SCHEDULER + "ExponentialLR", "gamma": 0.5, "unit": "validation"}
    first = make(main={**SGD, "scheduler": scheduler})["main"]
    first.optimizer.step()
    second = make(main={**SGD, "scheduler": scheduler})["main"]
    second.load_state_dict(first.state_dict())
    second.scheduler.step()
    assert second.optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_a_state_of_other_parameters_is_refused() -> None:
    state = make(main=SGD)["main"].state_dict()
    other = make(main={**SGD, "groups": [{"params": "*.bias", "lr": 0.2}]})["main"]
    with pytest.raises(CheckpointError, match=r"does not fit the optimizer.*To mend it"):
        other.load_state_dict(state)
