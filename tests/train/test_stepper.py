from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from roost.base.errors import ContractError
from roost.train.optimizers import Optim
from roost.train.stepper import Stepper, Window
from tests.train.parts import bits


def line(**dtype: Any) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 1, **dtype)


def window(*sizes: int) -> Window:
    """Micro-batches of these sizes, in float64."""
    generator = torch.Generator().manual_seed(1)
    found = Window()
    for size in sizes:
        found.append(torch.randn(size, 3, generator=generator, dtype=torch.float64))
        found.num_samples.append(size)
    return found


@pytest.mark.parametrize("given", ["optimizer", "optim", "named"])
def test_one_step_of_one_batch(given: str) -> None:
    module, by_hand = line(), line()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    stepper = Stepper(
        {"optimizer": optimizer, "optim": Optim(optimizer), "named": {"main": optimizer}}[given]
    )
    x = torch.randn(4, 3)
    values = stepper.run(lambda batch: {"loss": module(batch).mean(), "twice": 2 * module(batch).mean()}, [x])
    by_hand(x).mean().backward()
    torch.optim.SGD(by_hand.parameters(), lr=0.1).step()
    assert bits(dict(module.state_dict())) == bits(dict(by_hand.state_dict()))
    assert values.keys() == {"loss", "twice"}
    assert all(isinstance(value, Tensor) and not value.requires_grad for value in values.values())


@pytest.mark.parametrize("sizes", [(4, 4, 4), (4, 4, 1), (1, 5)])
@pytest.mark.parametrize("weight", ["samples", "tensor", "whole", "number"])
def test_a_window_equals_one_big_batch(sizes: tuple[int, ...], weight: str) -> None:
    """With the default weight, the samples, and with weights of the loss's own, tensors of either kind."""

    def loss(module: nn.Module, batch: Tensor) -> dict[str, Any]:
        error = module(batch).squeeze(1).square()
        if weight == "samples":
            return {"loss": error.mean(), "size": error.mean()}
        weights = {
            "tensor": batch[:, 0].abs(),
            "whole": (batch[:, 0] * 10).abs().long() + 1,
            "number": torch.ones(len(batch)),
        }[weight]
        total = weights.sum()
        mean = (error * weights).sum() / total
        return {"loss": mean, "size": mean, "weight": float(total) if weight == "number" else total}

    module, by_hand = line(dtype=torch.float64), line(dtype=torch.float64)
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1))
    batches = window(*sizes)
    values = stepper.run(lambda batch: loss(module, batch), batches)
    whole = loss(by_hand, torch.cat(list(batches)))
    whole["loss"].backward()
    torch.optim.SGD(by_hand.parameters(), lr=0.1).step()
    for one, other in zip(module.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    assert float(values["loss"]) == pytest.approx(whole["loss"].item(), abs=1e-12)
    assert float(values["size"]) == pytest.approx(whole["size"].item(), abs=1e-12)
    assert float(values["weight"]) == pytest.approx(float(whole.get("weight", sum(sizes))))


@pytest.mark.parametrize("cut", [slice(2), slice(1, None), slice(None, None, -1)])
def test_a_part_of_a_window_keeps_its_sizes(cut: slice) -> None:
    """An `update` may take one optimizer over some of the micro-batches."""
    whole = window(4, 1, 2)
    part = whole[cut]
    assert isinstance(part, Window) and list(part) == list(whole)[cut]
    assert part.num_samples == [4, 1, 2][cut]
    assert whole[-1].shape == (2, 3)
    module = line(dtype=torch.float64)
    first = iter(part)  # whose length is not what the fallback would take for it
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1))
    values = stepper.run(lambda batch: module(next(first)).mean(), part)
    assert float(values["weight"]) == sum(part.num_samples)


@pytest.mark.parametrize(
    "batch",
    [torch.zeros(5, 3), (torch.zeros(5, 3), 1), {"x": [torch.zeros(5, 3)]}],
    ids=["tensor", "tuple", "nest"],
)
def test_the_samples_of_a_plain_list_of_batches_are_counted(batch: Any) -> None:
    module = line()
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1))
    values = stepper.run(lambda _: module(torch.ones(1, 3)).mean(), [batch, batch])
    assert float(values["weight"]) == 10.0


def test_clipping_gives_the_norm_before_it() -> None:
    module, by_hand = line(), line()
    stepper = Stepper(
        Optim(torch.optim.SGD(module.parameters(), lr=1.0), max_grad_norm=0.5, grad_norm_type=1.0)
    )
    x = torch.randn(4, 3)
    values = stepper.run(lambda batch: (module(batch) * 10).sum(), [x])
    (by_hand(x) * 10).sum().backward()
    norm = nn.utils.clip_grad_norm_(by_hand.parameters(), 0.5, norm_type=1.0)
    torch.optim.SGD(by_hand.parameters(), lr=1.0).step()
    assert torch.equal(values["grad_norm"], norm)
    assert bits(dict(module.state_dict())) == bits(dict(by_hand.state_dict()))


def test_several_optimizers_have_names_of_their_own() -> None:
    one, other = line(), line()
    stepper = Stepper(
        {
            "main": torch.optim.SGD(one.parameters(), lr=0.1),
            "d": Optim(torch.optim.SGD(other.parameters(), lr=0.1), max_grad_norm=1.0),
        }
    )
    x = torch.ones(2, 3)
    before = bits(dict(other.state_dict()))
    assert stepper.run(lambda batch: one(batch).mean(), [x]).keys() == {"loss"}
    assert bits(dict(other.state_dict())) == before
    assert stepper.run(lambda batch: other(batch).mean(), [x], optimizer="d").keys() == {
        "d_loss",
        "d_grad_norm",
    }
    with pytest.raises(ContractError, match=r"no optimizer 'g'; there are: main, d"):
        stepper.run(lambda batch: one(batch).mean(), [x], optimizer="g")


def test_a_mapping_need_not_be_a_dict() -> None:
    module = line()
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1))
    values = stepper.run(lambda batch: UserDict(loss=module(batch).mean(), x=1.0), [torch.ones(2, 3)])
    assert values["x"] == 1.0


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda m: None, r"loss\(\) gave no loss; received None"),
        (lambda m: {"accuracy": m.mean()}, r"gave no loss; received 'a mapping with accuracy'.*To mend it"),
        (lambda m: {}, r"a mapping with nothing"),
        (lambda m: m, r"no single number; received 'a tensor of shape \(2, 1\)'.*\.mean\(\)"),
        (lambda m: m.mean().reshape(1), r"shape \(1,\)"),
        (lambda m: m.mean().long(), r"no single number"),
        (lambda m: {"loss": 1.0}, r"no single number; received 1.0"),
        (lambda m: m.mean().detach(), r"does not depend on any trainable parameter.*detach"),
    ],
)
def test_what_is_no_loss(output: Any, message: str, count: int) -> None:
    module = line()
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1))
    before = bits(dict(module.state_dict()))
    with pytest.raises(ContractError, match=message):
        stepper.run(lambda batch: output(module(batch)), [torch.ones(2, 3)] * count)
    assert bits(dict(module.state_dict())) == before


def test_a_window_whose_loss_misses_the_parameters_of_its_optimizer_steps_nothing() -> None:
    """As with one batch: torch skips parameters without a gradient."""
    one, other = line(), line()
    stepper = Stepper({"main": torch.optim.SGD(one.parameters(), lr=0.1)})
    for batches in ([torch.ones(2, 3)], [torch.ones(2, 3)] * 2):
        before = bits(dict(one.state_dict()))
        stepper.run(lambda batch: other(batch).mean(), batches)
        assert bits(dict(one.state_dict())) == before


def test_state_round_trip() -> None:
    def made() -> tuple[nn.Linear, Stepper]:
        module = line()
        optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
        return module, Stepper({"a": Optim(optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2))})

    module, stepper = made()
    for _ in range(3):
        stepper.run(lambda batch: module(batch).mean(), [torch.ones(2, 3)], optimizer="a")
        stepper.optimizers["a"].scheduler.step()
    _, fresh = made()
    fresh.load_state_dict(stepper.state_dict())
    assert bits(fresh.state_dict()) == bits(stepper.state_dict())
