from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from roost.config import build
from roost.project import native
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
    ("raises", "words"),
    [
        (lambda: nn.Linear(4, 2)(torch.ones(3, 5)), "takes 4 features and got 5 (a batch of 3x5)"),
        (lambda: torch.ones(3, 5) @ torch.ones(4, 2), "of 3x5 cannot be multiplied by one with 4 rows"),
        (lambda: nn.Linear(4, 2)(torch.ones(3, 4).double()), "numbers of two types meet: Double and Float"),
        (lambda: nn.Conv2d(3, 2, 1)(torch.ones(1, 3, 4, 4).double()), "two types meet: double and float"),
        (lambda: nn.Conv2d(3, 2, 1)(torch.ones(1, 3, 4, 4).byte()), "meet: unsigned char and float"),
        (lambda: nn.Conv2d(3, 2, 1)(torch.ones(1, 1, 4, 4)), "takes 3 channels and got 1 (its input is [1,"),
        (lambda: loss(torch.tensor([0, 1, 9])), "a class label is 9"),
        (lambda: loss(torch.tensor([0, 1, -1])), "a class label is -1"),
        (lambda: loss(torch.ones(3)), "class labels must be whole numbers (torch.long), and are Float"),
        (lambda: nn.Embedding(3, 4)(torch.tensor([5])), "num_embeddings"),
        (lambda: nn.BatchNorm1d(3)(torch.ones(1, 3)), "got one sample, which has no variance"),
        (lambda: nn.BCEWithLogitsLoss()(torch.ones(3, 1), torch.ones(3)), "shape [3] with outputs of shape"),
        (lambda: (weight() * 2).backward(), "more than one number"),
        (lambda: torch.ones(()).backward(), "no trainable parameter"),
        (twice, "backward() twice"),
        (in_place, "changed in place"),
        (one_cycle, "OneCycleLR was built for 2 steps, and this was step 3"),
        (lambda: torch.optim.LBFGS([weight()]).step(), "LBFGS needs a closure"),
        (sparse, "SparseAdam got a dense gradient"),
        (NoSuper, "before nn.Module was set up"),
    ],
)  # fmt: skip
def test_for_real(raises: Callable[[], object], words: str) -> None:
    assert words in known(of(raises)).words


def test_one_sample_is_the_share_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    cause = known(of(lambda: nn.BatchNorm2d(3)(torch.ones(1, 3, 1, 1))))
    assert cause.words.endswith(": the share of one of 4 ranks") and "data.drop_last: true" in cause.fix


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
def test_a_contract_whose_init_takes_something_else(tmp_path: Path, code: str, text: str, who: str) -> None:
    source = {"runner": RUNNER, "dataset": DATASET}[code].replace(
        "    def build(self)", f"    {text}\n\n    def build(self)"
    )
    package = project(tmp_path, **{code: source})  # type: ignore[arg-type]
    try:
        error = of(lambda: native.load(package, project="", device="cpu"))
    finally:
        build.forget(package.path)
    assert error.name == "TypeError"
    assert known(error).words.startswith(f"{who}.__init__() does not take what roost gives")


class TakesNothing:
    pass


@pytest.mark.parametrize(
    "raises",
    [
        lambda: TakesNothing(3),  # type: ignore[call-arg]  # somebody else's call
        lambda: torch.ones(3)[5],
        lambda: torch.ones(3).index_select(0, torch.tensor([5])),
        lambda: torch.ones(3) + torch.ones(4),
        lambda: weight().add_(1),
    ],
)
def test_what_only_sounds_like_it(raises: Callable[[], object]) -> None:
    assert unknown(of(raises))
