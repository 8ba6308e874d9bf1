from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import roost
from roost.train.model.plain_attributes import PlainAttributes


class Part(nn.Module):
    """A part of a runner that keeps a number."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0


class Runner(roost.Runner):
    """Attributes of many kinds."""

    def build(self) -> None:
        self.net = nn.LSTM(2, 2)
        self.part = Part()
        self.counter = 0
        self.history: list[float] = []
        self.table = {"a": torch.zeros(3), "b": np.zeros(2)}
        self.function = print
        self.thing: Any = object()
        self.weights = list(self.net.parameters())
        self.named = {"data": self.net.weight_ih_l0.data}
        self.register_buffer("known", torch.zeros(2))


@pytest.fixture
def runner() -> Runner:
    runner = Runner({"a": 1}, {"b": [1]})
    runner.build()
    return runner


def change(runner: Runner, name: str) -> None:
    """Changes one thing in place."""
    match name:
        case "counter":
            runner.counter += 1
        case "history":
            runner.history.append(0.5)
        case "table":
            runner.table["a"][1] = 1.0
        case "part.seen":
            runner.part.seen = True
        case "info":
            runner.info["b"].append(2)
        case "new":
            runner.new = [1]
        case "counter gone":
            del runner.counter


@pytest.mark.parametrize("name", ["counter", "history", "table", "part.seen", "info", "new", "counter gone"])
def test_what_changes_is_named(runner: Runner, name: str) -> None:
    plain = PlainAttributes(runner)
    change(runner, name)
    assert plain.changed() == [name.removesuffix(" gone")]
    change(runner, "history")
    assert plain.changed() == [], "it looks once"


def test_what_is_saved_elsewhere_or_cannot_be_judged_is_not_named(runner: Runner) -> None:
    plain = PlainAttributes(runner)
    with torch.no_grad():
        for parameter in runner.parameters():
            parameter.add_(1.0)
    runner.known.add_(1.0)
    runner.function = len
    runner.thing = object()
    runner.other = object()
    runner.eval()
    runner.net.flatten_parameters()
    assert plain.changed() == []


def test_a_part_that_saves_extra_state_is_trusted() -> None:
    class Saves(Part):
        def get_extra_state(self) -> Any:
            return self.seen

        def set_extra_state(self, state: Any) -> None:
            self.seen = state

    module = nn.Sequential(Saves())
    plain = PlainAttributes(module)
    module[0].seen = 3
    assert plain.changed() == []


def test_the_same_values_in_other_objects_are_no_change(runner: Runner) -> None:
    plain = PlainAttributes(runner)
    runner.table = {name: value + 0 for name, value in runner.table.items()}
    runner.history = []
    assert plain.changed() == []
