from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from roost.config import objects
from roost.project import native_project
from tests.messages import Messages
from tests.project.projects import DATASET, RUNNER, project
from tests.worker.causes.scenes import known, of, unknown


def weight() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def twice() -> None:
    x = weight()
    loss = (x * x).sum()
    loss.backward()
    loss.backward()


def in_place() -> None:
    y = weight().exp()
    y.add_(1)
    y.sum().backward()


def one_cycle() -> None:
    optimizer = torch.optim.SGD([weight()], lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=2)
    for _ in range(3):
        optimizer.step()
        scheduler.step()


def sparse() -> None:
    x = weight()
    x.grad = torch.ones(3)
    torch.optim.SparseAdam([x]).step()


class NoSuper(nn.Module):
    def __init__(self) -> None:
        self.net = nn.Linear(1, 1)


def loss(labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(torch.ones(3, 4), labels)


@pytest.mark.parametrize(
    ("raises", "facts"),
    [
        (lambda: nn.Linear(4, 2)(torch.ones(3, 5)), "4 .* 5 .*3x5"),
        (lambda: torch.ones(3, 5) @ torch.ones(4, 2), "3x5 .* 4 "),
        (lambda: nn.Linear(4, 2)(torch.ones(3, 4).double()), "Double .*Float"),
        (lambda: nn.Conv2d(3, 2, 1)(torch.ones(1, 3, 4, 4).double()), "double .*float"),
        (lambda: nn.Conv2d(3, 2, 1)(torch.ones(1, 3, 4, 4).byte()), "unsigned char .*float"),
        (lambda: nn.Conv2d(3, 2, 1)(torch.ones(1, 1, 4, 4)), r"3 .* 1 .*\[1,"),
        (lambda: loss(torch.tensor([0, 1, 9])), "label .*9"),
        (lambda: loss(torch.tensor([0, 1, -1])), "label .*-1"),
        (lambda: loss(torch.ones(3)), r"label.*torch\.long.*Float"),
        (lambda: nn.Embedding(3, 4)(torch.tensor([5])), "num_embeddings"),
        (lambda: nn.BatchNorm1d(3)(torch.ones(1, 3)), "variance"),
        (lambda: nn.BCEWithLogitsLoss()(torch.ones(3, 1), torch.ones(3)), r"\[3\] .*\[3, 1\]"),
        (lambda: (weight() * 2).backward(), "backward"),
        (lambda: torch.ones(()).backward(), "parameter"),
        (twice, r"backward\(\)"),
        (in_place, "in place"),
        (one_cycle, "OneCycleLR .*2 .*3"),
        (lambda: torch.optim.LBFGS([weight()]).step(), "LBFGS .*closure"),
        (sparse, "SparseAdam .*dense"),
        (NoSuper, r"nn\.Module"),
    ],
)  # fmt: skip
def test_for_real(raises: Callable[[], object], facts: str, messages: Messages) -> None:
    words = known(of(raises)).description
    assert re.search(facts, words)
    messages.check(words)


def test_one_sample_is_the_share_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    cause = known(of(lambda: nn.BatchNorm2d(3)(torch.ones(1, 3, 1, 1))))
    assert "4 ranks" in cause.description and "data.drop_last: true" in cause.fix


def test_the_steps_of_one_cycle_come_from_the_config() -> None:
    assert '"${total_steps}"' in known(of(one_cycle)).fix


@pytest.mark.parametrize(
    ("code", "text", "who"),
    [
        ("runner", "def __init__(self):\n        super().__init__()", "Runner"),
        ("runner", "def __init__(self, args):\n        super().__init__(args)", "Runner"),
        ("dataset", "def __init__(self):\n        pass", "Dataset"),
        ("dataset", "def __init__(self, args, more):\n        pass", "Dataset"),
    ],
)
def test_a_contract_whose_init_takes_something_else(
    tmp_path: Path, code: str, text: str, who: str, messages: Messages
) -> None:
    source = {"runner": RUNNER, "dataset": DATASET}[code].replace(
        "    def build(self)", f"    {text}\n\n    def build(self)"
    )
    package = project(tmp_path, **{code: source})  # type: ignore[arg-type]
    try:
        error = of(lambda: native_project.load(package, project="", device="cpu"))
    finally:
        objects.unload_project(package.path)
    assert error.name == "TypeError"
    assert known(error).description.startswith(f"{who}.__init__() ")
    messages.check(known(error).description)


class TakesNothing:
    pass


@pytest.mark.parametrize(
    "raises",
    [
        lambda: TakesNothing(3),  # type: ignore[call-arg]  # the call of another library
        lambda: torch.ones(3)[5],
        lambda: torch.ones(3).index_select(0, torch.tensor([5])),
        lambda: torch.ones(3) + torch.ones(4),
        lambda: weight().add_(1),
    ],
)
def test_what_only_sounds_like_it(raises: Callable[[], object]) -> None:
    assert unknown(of(raises))
