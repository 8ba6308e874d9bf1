from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

from roost.base import state_tree
from roost.base.errors import CheckpointError
from roost.train.optim.weight_average import Average, AverageMethod
from tests.messages import Messages
from tests.train.parts import bits, weights


def net() -> nn.Module:
    """With buffers that are averaged, one that is counted, and a cache."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2))
    module.register_buffer("cache", torch.zeros(2), persistent=False)
    return module


def trained(module: nn.Module, steps: int, after: Callable[[], None] = lambda: None) -> None:
    """Takes steps in training mode, the same ones each time; calls ``after`` each."""
    generator = torch.Generator().manual_seed(2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        module(torch.randn(5, 1, 6, 6, generator=generator)).square().mean().backward()
        optimizer.step()
        after()


@pytest.mark.parametrize(
    ("method", "fn"), [("ema", get_ema_multi_avg_fn(0.9)), ("swa", get_swa_multi_avg_fn())]
)
def test_the_bits_of_averaged_model(method: AverageMethod, fn: Any) -> None:
    module = net()
    average, theirs = Average(method=method, decay=0.9), AveragedModel(module, multi_avg_fn=fn)

    def of_numbers(averages: Any, tensors: Any, count: Any) -> None:
        if averages[0].is_floating_point():  # at a counter torch's own would fail
            fn(averages, tensors, count)

    with_buffers = AveragedModel(module, multi_avg_fn=of_numbers, use_buffers=True)

    def both() -> None:
        average.update(module)
        theirs.update_parameters(module)
        with_buffers.update_parameters(module)

    trained(module, 6, both)
    found = average.state_dict()
    assert found["count"] == 6 and found["method"] == method
    assert list(found["weights"]) == list(module.state_dict())
    for name, parameter in theirs.module.named_parameters():
        assert torch.equal(found["weights"][name], parameter), name
    for name in ("1.running_mean", "1.running_var"):
        assert torch.equal(found["weights"][name], with_buffers.module.get_buffer(name)), name
        assert not torch.equal(found["weights"][name], module.get_buffer(name)), name
    assert found["weights"]["1.num_batches_tracked"] == 6, "a counter is taken as it is"


def test_training_does_not_notice() -> None:
    module, beside = net(), net()
    average = Average(decay=0.5)

    def swap() -> None:
        average.update(module)
        with average.swapped(module), torch.no_grad():
            module(torch.ones(2, 1, 6, 6))  # in training mode: it writes into the buffers

    trained(module, 4, swap)
    trained(beside, 4)
    assert weights(module) == weights(beside)


def test_inside_are_the_averaged_weights_and_afterwards_the_own_ones() -> None:
    module, average = net(), Average(decay=0.5)
    trained(module, 3, lambda: average.update(module))
    objects = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    places = {name: one.data_ptr() for name, one in objects.items()}
    before, kept = weights(module), bits(average.state_dict())
    expected = copy.deepcopy(module)
    expected.load_state_dict(average.state_dict()["weights"])
    x = torch.ones(2, 1, 6, 6)
    with pytest.raises(ZeroDivisionError), average.swapped(module):
        assert weights(module) == weights(expected) != before
        assert torch.equal(module(x), expected(x))
        module[1].running_mean = torch.ones(3)  # another tensor
        module[1].running_var.add_(1)
        raise ZeroDivisionError
    assert weights(module) == before and bits(average.state_dict()) == kept
    for name, one in {**dict(module.named_parameters()), **dict(module.named_buffers())}.items():
        assert one is objects[name] and one.data_ptr() == places[name], name


def test_before_its_first_update_it_is_the_weights() -> None:
    module, average = net(), Average()
    before = weights(module)
    with average.swapped(module):
        assert weights(module) == before
    assert average.state_dict() == {"method": "ema", "count": 0, "weights": {}}


@pytest.mark.parametrize("method", ["ema", "swa"])
def test_goes_on_exactly_from_its_state(method: AverageMethod) -> None:
    module, average, states = net(), Average(method=method, decay=0.9), []

    def update() -> None:
        average.update(module)
        skeleton, leaves = state_tree.pack(
            {"average": average.state_dict(), "module": dict(module.state_dict())}
        )
        states.append(state_tree.unpack(skeleton, leaves, to="torch"))

    trained(module, 6, update)
    again, other = Average(method=method, decay=0.9), net()
    again.load_state_dict(states[2]["average"])
    taken = bits(states[2]["average"])
    for state in states[3:]:
        other.load_state_dict(state["module"])
        again.update(other)
        assert bits(again.state_dict()) == bits(state["average"])
    assert bits(states[2]["average"]) == taken, "it took a copy"


def test_tied_weights_are_averaged_once_and_stay_tied() -> None:
    module = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    module["b"].weight = module["a"].weight
    average, theirs = Average(decay=0.5), []
    expected = module["a"].weight.detach().clone()
    for step in range(3):
        with torch.no_grad():
            module["a"].weight.add_(1)
        average.update(module)
        expected = module["a"].weight.detach().clone() if not step else expected.lerp(module["a"].weight, 0.5)
    again = Average(decay=0.5)
    skeleton, leaves = state_tree.pack(average.state_dict())
    again.load_state_dict(state_tree.unpack(skeleton, leaves, to="torch"))
    again.fit_to(module)
    for one in (average, again):
        found = one.state_dict()["weights"]
        assert found["a.weight"] is found["b.weight"] and torch.equal(found["a.weight"], expected)
        theirs.append(bits(one.state_dict()))
    assert theirs[0] == theirs[1]


def test_short_numbers_are_averaged_in_long_ones() -> None:
    """In bfloat16 such an average would never move: half of its last digit is more than what is added."""
    module = nn.Linear(2, 1, bias=False, dtype=torch.bfloat16)
    nn.init.ones_(module.weight)
    average = Average(decay=0.999)
    average.update(module)
    nn.init.constant_(module.weight, 2.0)
    for _ in range(10):
        average.update(module)
    (found,) = average.state_dict()["weights"].values()
    assert found.dtype == torch.float32 and found.sub(2 - 0.999**10).abs().max() < 1e-6
    with average.swapped(module):
        assert module.weight.dtype == torch.bfloat16 and torch.equal(module.weight, found.bfloat16())


def test_complex_and_wide_numbers_and_masks() -> None:
    module = nn.Module()
    module.wave = nn.Parameter(torch.tensor([1 + 1j]))
    module.wide = nn.Parameter(torch.ones(1, dtype=torch.float64))
    module.register_buffer("mask", torch.tensor([True, False]))
    average = Average(method="swa")
    for step in range(3):
        with torch.no_grad():
            module.wave.fill_(step * 3j)
            module.wide.fill_(step)
        module.mask = torch.tensor([step == 2, False])  # another tensor each time
        average.update(module)
    found = average.state_dict()["weights"]
    assert found["wave"].item() == pytest.approx(3j) and found["wide"].item() == 1.0
    assert found["mask"].tolist() == [True, False]


def test_the_layout_is_that_of_the_weights_also_after_a_restart() -> None:
    module = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    average = Average()
    average.update(module)
    again = Average()
    again.load_state_dict({**average.state_dict(), "weights": _contiguous(average.state_dict()["weights"])})
    for one in (average, again):
        stride = module.weight.stride()
        with one.swapped(module):
            assert module.weight.stride() == stride


def _contiguous(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.contiguous() for name, value in weights.items()}


def test_what_is_of_another_model_is_refused(messages: Messages) -> None:
    average = Average()
    average.update(nn.Linear(2, 2))
    for other, named in ((nn.Linear(2, 3), "weight, bias"), (nn.Linear(2, 2, bias=False), "bias")):
        again = Average()
        again.load_state_dict(average.state_dict())
        with pytest.raises(CheckpointError, match=named) as refused:
            again.fit_to(other)
        messages.check(refused.value)


def test_a_model_that_grows_takes_its_new_weights_in_as_they_are() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    average = Average(decay=0.5)
    average.update(module)
    first = module[0].weight.detach().clone()
    module.append(nn.Linear(2, 1))
    with torch.no_grad():
        module[0].weight.add_(1)
    average.update(module)
    found = average.state_dict()["weights"]
    assert torch.equal(found["0.weight"], first.lerp(first + 1, 0.5))
    assert torch.equal(found["1.weight"], module[1].weight)


def _new_weight(module: nn.Sequential) -> None:
    module[0].weight = nn.Parameter(torch.full((2, 2), 3.0))


def _new_layer(module: nn.Sequential) -> None:
    module[0] = nn.Linear(2, 2)


def _new_buffer(module: nn.Sequential) -> None:
    module[1].running_mean = torch.full((2,), 3.0)


def _no_bias(module: nn.Sequential) -> None:
    module[0].register_parameter("bias", None)


@pytest.mark.parametrize("change", [_new_weight, _new_layer, _new_buffer, _no_bias])
def test_what_was_replaced_is_noticed(change: Callable[[nn.Sequential], None]) -> None:
    module, average = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), Average(decay=0.5)
    average.update(module)
    before = {name: one.clone() for name, one in average.state_dict()["weights"].items()}
    change(module)
    average.update(module)
    now = module.state_dict()
    for name, found in average.state_dict()["weights"].items():
        is_mean = now[name].is_floating_point()
        assert torch.equal(found, before[name].lerp(now[name], 0.5) if is_mean else now[name])
    assert average.state_dict()["weights"].keys() == now.keys()
    with average.swapped(module):
        assert torch.equal(module[0].weight, average.state_dict()["weights"]["0.weight"])
    assert torch.equal(module[0].weight, now["0.weight"])


def test_forgetting() -> None:
    module, average = net(), Average()
    average.update(module)
    average.clear()
    assert average.state_dict() == {"method": "ema", "count": 0, "weights": {}}
    trained(module, 1)
    average.update(module)
    assert torch.equal(average.state_dict()["weights"]["0.weight"], module[0].weight)
