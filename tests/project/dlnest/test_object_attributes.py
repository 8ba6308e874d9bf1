from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from roost.base import state_tree
from roost.project.dlnest.object_attributes import ObjectAttributes


class Mean:
    """A meter of the project."""

    def __init__(self) -> None:
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.sum += value


class Root:
    """A runner."""

    def __init__(self, log: dict[str, Any]) -> None:
        self.model = nn.Linear(2, 2)
        self.weight = self.model.weight
        self.mean, self.best, self.names = Mean(), -1.0, ["a"]
        self.table = list(range(10))
        self.log, self.losses = log, log["loss"]
        self.numbers = np.random.default_rng(0)
        self.drawn, self.shuffled = random.Random(1), torch.Generator().manual_seed(2)
        self.legacy = np.random.RandomState(3)
        self.callback = print


def attributes(
    root: Root, log: dict[str, Any], said: list[str], *, package: Path = Path(__file__).parent
) -> ObjectAttributes:
    return ObjectAttributes(
        {"Runner": root},
        package=package,
        device="cpu",
        log=lambda: log,
        constants=[],
        note_inexact=said.append,
    )


def train(root: Root) -> list[float]:
    """Changes everything that a training may change; gives what was drawn."""
    root.mean.add(2.0)
    root.best, root.last = 0.5, (root.model.weight * 2).sum()  # type: ignore[attr-defined]
    root.names.append("b")
    return [
        root.numbers.random(),
        root.drawn.random(),
        torch.rand((), generator=root.shuffled).item(),
        root.legacy.rand(),
    ]


def test_what_changed_is_set_in_the_objects_of_another_process() -> None:
    said: list[str] = []
    log: dict[str, Any] = {"loss": [1.0]}
    root = Root(log)
    own = attributes(root, log, said)
    own.begin()
    train(root)
    state = state_tree.unpack(*state_tree.pack(own.state_dict()))
    expected = train(root)
    assert {name.removeprefix("Runner.") for name in state} == {
        *("mean.sum", "best", "last", "names", "log", "losses"),
        *("numbers", "drawn", "shuffled", "legacy"),
    }
    other_log: dict[str, Any] = {"loss": [1.0]}
    other = Root({"loss": []})
    names = other.names
    loaded = attributes(other, other_log, said)
    loaded.begin()
    loaded.load_state_dict(state)
    assert (other.mean.sum, other.best, other.names) == (2.0, 0.5, ["a", "b"])
    assert other.names is names, "a container keeps its identity"
    assert other.log is other_log and other.losses is other_log["loss"]
    assert train(other) == expected
    assert loaded.state_dict().keys() == state.keys() and not said


def test_an_object_that_is_not_there_is_named() -> None:
    said: list[str] = []
    log: dict[str, Any] = {"loss": []}
    root = Root(log)
    own = attributes(root, log, said)
    own.begin()
    root.late = Mean()  # type: ignore[attr-defined]
    state = own.state_dict()
    attributes(Root(log), log, said).load_state_dict(state)
    [reason] = said
    assert reason.startswith("Runner.late.sum was made in training")


@pytest.mark.parametrize("value", [list(range(200_000)), np.zeros(5_000_000), torch.zeros(5_000_000)])
def test_tables_are_left_alone(value: Any) -> None:
    log: dict[str, Any] = {"loss": []}
    root = Root(log)
    own = attributes(root, log, [])
    own.begin()
    root.table = value
    assert "Runner.table" not in own.state_dict()


def test_paths_below_the_package_follow_it() -> None:
    log: dict[str, Any] = {"loss": []}
    root, other = Root(log), Root(log)
    own = attributes(root, log, [], package=Path("/old/run"))
    own.begin()
    root.names = ["/old/run/best.pt", "/old/runs"]
    attributes(other, log, [], package=Path("/new/fork")).load_state_dict(own.state_dict())
    assert other.names == ["/new/fork/best.pt", "/old/runs"]
