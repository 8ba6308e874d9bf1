from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from roost.base import state_tree
from roost.base.errors import ContractError
from roost.train.optim.optimizer import LR_SCALE, Optim
from roost.train.step.nonfinite_check import step_unless
from tests.messages import Messages
from tests.train.parts import bits


def line() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def with_gradients(module: nn.Module) -> nn.Module:
    for number, parameter in enumerate(module.parameters(), 1):
        parameter.grad = torch.full_like(parameter, 0.5 * number)
    return module


def test_what_cannot_be_meant(messages: Messages) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    with pytest.raises(ContractError, match=r"\bstep, epoch, validation\b.*'epochs'.*'epoch'") as refused:
        Optim(optimizer, unit="epochs")
    messages.check(refused.value)
    with pytest.raises(ContractError, match=r"\bevery_n_steps\b.*\b0\b") as refused:
        Optim(optimizer, every_n_steps=0)
    messages.check(refused.value)


def test_parameters_are_those_of_now() -> None:
    """A hook may add a group, whose parameters are cleared and clipped like the others."""
    module, added = line(), nn.Parameter(torch.ones(2))
    optim = Optim(torch.optim.SGD(module.parameters(), lr=0.1), max_grad_norm=1.0)
    assert len(optim.parameters) == 2
    optim.optimizer.add_param_group({"params": [added], LR_SCALE: 0.5})
    assert optim.parameters[-1] is added and optim.has_scaled_rates
    with_gradients(module)
    added.grad = torch.full((2,), 100.0)
    optim.clip()
    assert float(optim.gradient_norm(2.0)) == pytest.approx(1.0, rel=1e-4)
    optim.clear()
    assert added.grad is None and module.weight.grad is None


@pytest.mark.parametrize("kind", [1.0, 2.0, 3.5, float("inf")])
def test_clipping_is_torchs(kind: float) -> None:
    ours, by_hand = with_gradients(line()), with_gradients(line())
    optim = Optim(torch.optim.SGD(ours.parameters(), lr=0.1), max_grad_norm=0.7, grad_norm_type=kind)
    norm = optim.clip()
    assert torch.equal(norm, nn.utils.clip_grad_norm_(by_hand.parameters(), 0.7, norm_type=kind))
    for mine, theirs in zip(ours.parameters(), by_hand.parameters(), strict=True):
        assert mine.grad is not None and theirs.grad is not None and torch.equal(mine.grad, theirs.grad)


def test_no_gradient_has_the_norm_0() -> None:
    optim = Optim(torch.optim.SGD(line().parameters(), lr=0.1), max_grad_norm=1.0)
    assert float(optim.gradient_norm(float("inf"))) == 0.0 == float(optim.clip())


class Keeps(torch.optim.SGD):
    """Whose `zero_grad` is its own: it keeps the gradients, divided by two."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = parameter.grad / 2


def test_an_optimizer_may_clear_in_its_own_way() -> None:
    module = with_gradients(line())
    Optim(Keeps(module.parameters(), lr=0.1)).clear()
    assert module.weight.grad is not None and float(module.weight.grad[0, 0]) == 0.25
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    calls = []
    optimizer.zero_grad = lambda set_to_none=True: calls.append(1)  # type: ignore[method-assign]
    Optim(optimizer).clear()
    assert calls == [1] and module.weight.grad is not None


def test_how_often_it_moves() -> None:
    optim = Optim(torch.optim.SGD(line().parameters(), lr=0.1), every_n_steps=3)
    assert [optim.is_due() for _ in range(7)] == [False, False, True, False, False, True, False]
    other = Optim(torch.optim.SGD(line().parameters(), lr=0.1), every_n_steps=3)
    other.load_state_dict(optim.state_dict())
    assert [other.is_due() for _ in range(2)] == [False, True]


class Watched(torch.optim.SGD):
    """Remembers the rates that it is moved with."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.seen = [group["lr"] for group in self.param_groups]
        if closure is not None:
            raise RuntimeError("in the step")


def test_rates_are_scaled_in_the_step_alone() -> None:
    one, other = line(), line()
    groups = [{"params": one.parameters(), LR_SCALE: 0.5}, {"params": other.parameters(), "lr": 4.0}]
    optim = Optim(Watched(groups, lr=1.0))
    assert optim.lr == 0.5
    with optim.scaled_rates():
        optim.take_step()
    assert optim.optimizer.seen == [0.5, 4.0]  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="in the step"), optim.scaled_rates():
        optim.optimizer.step(lambda: 0.0)
    assert [group["lr"] for group in optim.optimizer.param_groups] == [1.0, 4.0]


def test_a_rate_that_is_a_tensor() -> None:
    module, rate = line(), torch.tensor(1.0)
    optimizer = torch.optim.AdamW([{"params": module.parameters(), LR_SCALE: 0.5}], lr=rate, foreach=False)
    optim = Optim(optimizer)
    with optim.scaled_rates():
        assert float(optimizer.param_groups[0]["lr"]) == 0.5
    assert optimizer.param_groups[0]["lr"] is rate and float(rate) == 1.0 and optim.lr == 0.5


@pytest.mark.parametrize(
    ("optimizer", "needs"),
    [(torch.optim.LBFGS, True), (torch.optim.SGD, False), (torch.optim.Adam, False)],
)
def test_who_evaluates_the_loss_by_itself(optimizer: Any, needs: bool) -> None:
    assert Optim(optimizer(line().parameters(), lr=0.1)).needs_closure is needs


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_who_has_one_kernel(name: str) -> None:
    made = getattr(torch.optim, name)
    assert Optim(made(line().parameters(), lr=0.1, fused=True)).is_fused
    assert not Optim(made(line().parameters(), lr=0.1)).is_fused


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
@pytest.mark.parametrize("built", [True, False])
def test_after_loading_it_is_fused_as_the_loaded_groups_say(name: str, built: bool) -> None:
    """A loaded state replaces ``fused``, and torch asserts if a kernel that cannot skip is given a flag."""
    made, module = getattr(torch.optim, name), with_gradients(line())
    saved = Optim(made(with_gradients(line()).parameters(), lr=0.1, fused=not built))
    saved.take_step()
    optim = Optim(made(module.parameters(), lr=0.1, fused=built))
    optim.load_state_dict(saved.state_dict())
    assert optim.is_fused is not built
    before = bits(dict(module.named_parameters()))
    step_unless(torch.tensor(True), optim)
    assert bits(dict(module.named_parameters())) == before
    step_unless(torch.tensor(False), optim)
    assert bits(dict(module.named_parameters())) != before


def test_an_optimizer_with_a_mark_of_its_own_keeps_it() -> None:
    class Foreign(torch.optim.SGD):
        """Whose own step reads the flag."""

        _step_supports_amp_scaling = True

    _, saved = sgd()
    optim = Optim(Foreign(line().parameters(), lr=0.1))
    optim.load_state_dict(saved.state_dict())
    assert optim.is_fused


@pytest.mark.parametrize("capturable", [False, True])
def test_the_product_of_nadam_stays_where_its_step_reads_it(
    capturable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch loads it to the device of the parameter, here "meta", and would read it back there each step."""
    module = with_gradients(line())
    saved = Optim(torch.optim.NAdam(module.parameters(), lr=0.1))
    saved.take_step()
    state = saved.state_dict()
    state["optimizer"]["param_groups"][0]["capturable"] = capturable
    optim = Optim(torch.optim.NAdam(line().to("meta").parameters(), lr=0.1))
    if capturable:  # all of it lies on the device then
        optim.load_state_dict({**state, "optimizer": on_meta(state["optimizer"])})
    else:
        optim.load_state_dict(state)
    found = [one["mu_product"].device.type for one in optim.optimizer.state.values()]
    assert found == [("meta" if capturable else "cpu")] * 2


def on_meta(state: Any) -> Any:
    numbers = {key: {n: v.to("meta") for n, v in one.items()} for key, one in state["state"].items()}
    return {**state, "state": numbers}


def sgd(**arguments: Any) -> tuple[nn.Module, Optim]:
    module = with_gradients(line())
    return module, Optim(torch.optim.SGD(module.parameters(), lr=0.1, **arguments))


def test_a_fused_momentum_begins_once() -> None:
    _, optim = sgd(momentum=0.9, fused=True)
    assert optim.begins_momentum
    optim.take_step()
    assert not optim.begins_momentum
    _, again = sgd(momentum=0.9, fused=True)
    again.load_state_dict(optim.state_dict())
    assert not again.begins_momentum


def test_a_group_that_joins_begins_its_own_momentum() -> None:
    _, optim = sgd(momentum=0.9, fused=True)
    optim.take_step()
    added = nn.Parameter(torch.ones(2))
    optim.optimizer.add_param_group({"params": [added]})
    assert not optim.begins_momentum, "it has no gradient yet"
    added.grad = torch.ones(2)
    assert optim.begins_momentum


@pytest.mark.parametrize("arguments", [{"fused": True}, {"momentum": 0.9}])
def test_no_other_optimizer_creates_momentum(arguments: Any) -> None:
    assert not sgd(**arguments)[1].begins_momentum


def test_a_scaler_survives_the_codec_exactly() -> None:
    """The scale, and how many good steps it has seen since it last changed."""

    def made() -> tuple[nn.Module, Optim]:
        module = line()
        optim = Optim(torch.optim.SGD(module.parameters(), lr=0.1))
        optim.scaler = torch.amp.GradScaler("cpu", growth_interval=4)
        return module, optim

    def go(module: nn.Module, optim: Optim, steps: int) -> None:
        scaler = optim.scaler
        assert scaler is not None
        for _ in range(steps):
            optim.clear()
            loss: Tensor = module(torch.ones(1, 3)).sum()
            scaler.scale(loss).backward()
            scaler.step(optim.optimizer)
            scaler.update()

    whole, first = made(), made()
    go(*whole, 9)
    go(*first, 6)
    state = first[1].state_dict()
    assert state["scaler"]["_growth_tracker"] == 2 and state["scaler"]["scale"] == 2.0**17
    second = made()
    second[0].load_state_dict(first[0].state_dict())
    second[1].load_state_dict(state_tree.unpack(*state_tree.pack(state)))
    go(*second, 3)
    assert bits(second[1].state_dict()) == bits(whole[1].state_dict())
    assert whole[1].scaler is not None and whole[1].scaler.get_scale() == 2.0**18


def test_a_state_from_before_there_were_scalers_and_turns() -> None:
    _, optim = sgd()
    state = optim.state_dict()
    del state["scaler"], state["asked"]
    optim.load_state_dict(state)
    assert optim.num_calls == 0
