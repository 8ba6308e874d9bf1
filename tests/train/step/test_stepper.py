from __future__ import annotations

import itertools
from collections import UserDict
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from roost.base.errors import ContractError
from roost.train.distributed.ranks import Ranks
from roost.train.optim.optimizer import Optim
from roost.train.step import gradients as gradients_module
from roost.train.step import stepper as stepper_module
from roost.train.step import timing as timing_module
from roost.train.step.loss import Window
from roost.train.step.stepper import Stepper
from roost.train.step.timing import BACKWARD, FORWARD, OPTIMIZER
from tests.messages import Messages
from tests.train.parts import MLP, Gan, Still, bits, built, plain, weights


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


def test_several_optimizers_have_names_of_their_own(messages: Messages) -> None:
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
    with pytest.raises(ContractError, match=r"'g'.*\bmain, d\b") as refused:
        stepper.run(lambda batch: one(batch).mean(), [x], optimizer="g")
    messages.check(refused.value)


def test_several_on_one_loss_have_their_own_norms() -> None:
    one, other = line(), line()
    optims = {
        name: Optim(torch.optim.SGD(module.parameters(), lr=0.1), max_grad_norm=1.0)
        for name, module in (("main", one), ("d", other))
    }
    stepper = Stepper(optims)
    x = torch.ones(2, 3)
    values = stepper.run(lambda b: (one(b) + other(b)).mean(), [x], optimizer=stepper.every_optimizer)
    assert values.keys() == {"loss", "main_grad_norm", "d_grad_norm"}
    # Alone, an optimizer of any name is what the loss is for.
    alone = Stepper({"d": optims["d"]})
    values = alone.run(lambda b: other(b).mean(), [x], optimizer=alone.every_optimizer)
    assert values.keys() == {"loss", "grad_norm"}
    with pytest.raises(ContractError, match=r"''.*: d\b"):
        alone.run(lambda b: other(b).mean(), [x], optimizer=())


def test_nothing_is_computed_if_no_optimizer_is_due() -> None:
    module = line()
    stepper = Stepper(Optim(torch.optim.SGD(module.parameters(), lr=0.1), every_n_steps=2))
    calls = []

    def loss(batch: Tensor) -> Tensor:
        calls.append(len(batch))
        return module(batch).mean()

    found = [stepper.run(loss, [torch.ones(size, 3)]) for size in (1, 2, 3, 4)]
    assert calls == [2, 4] and [bool(values) for values in found] == [False, True, False, True]


def test_who_evaluates_the_loss_by_itself_is_clipped_and_scaled_each_time() -> None:
    module, by_hand = line(), line()
    groups = [{"params": module.parameters(), "lr_scale": 0.5}]
    optim = Optim(torch.optim.LBFGS(groups, lr=1.0, max_iter=3), max_grad_norm=0.1)
    optimizer = torch.optim.LBFGS(by_hand.parameters(), lr=0.5, max_iter=3)
    x, losses = torch.randn(4, 3), []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = by_hand(x).square().mean()
        loss.backward()
        losses.append((loss.detach(), nn.utils.clip_grad_norm_(by_hand.parameters(), 0.1)))
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]
    values = Stepper(optim).run(lambda batch: module(batch).square().mean(), [x])
    assert bits(dict(module.state_dict())) == bits(dict(by_hand.state_dict()))
    assert len(losses) > 1 and (values["loss"], values["grad_norm"]) == losses[0]
    assert optim.optimizer.param_groups[0]["lr"] == 1.0


def test_who_evaluates_the_loss_by_itself_moves_in_the_rest_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = line()
    stepper = Stepper(torch.optim.LBFGS(module.parameters(), max_iter=3))
    evaluations = []

    def loss(batch: Tensor) -> Tensor:
        evaluations.append(0)
        return module(batch).square().mean()

    ticks = itertools.count()
    for module_of_clock in (stepper_module, gradients_module, timing_module):
        monkeypatch.setattr(module_of_clock, "perf_counter", lambda: float(next(ticks)))
    stepper.run(loss, [torch.randn(4, 3)])
    spent, times = stepper.timing.spent, len(evaluations)
    assert times > 1 and spent[FORWARD] == spent[BACKWARD] == times
    assert spent[OPTIMIZER] == 2 * times + 1 and sum(spent) == 4 * times + 1


def test_of_several_one_may_not_evaluate_the_loss_by_itself(messages: Messages) -> None:
    one, other = line(), line()
    optims = {
        "a": torch.optim.LBFGS(one.parameters()),
        "b": torch.optim.SGD(other.parameters(), lr=0.1),
    }
    stepper = Stepper(optims)
    with pytest.raises(ContractError, match=r"\(LBFGS, SGD\).*Runner\.update") as refused:
        stepper.run(lambda b: (one(b) + other(b)).mean(), [torch.ones(2, 3)], optimizer=("a", "b"))
    messages.check(refused.value)


def test_a_mapping_need_not_be_a_dict() -> None:
    module = line()
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1))
    values = stepper.run(lambda batch: UserDict(loss=module(batch).mean(), x=1.0), [torch.ones(2, 3)])
    assert values["x"] == 1.0


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda m: None, r"loss\(\).*\bNone\b"),
        (lambda m: {"accuracy": m.mean()}, r"loss\(\).*\baccuracy\b"),
        (lambda m: {}, r"loss\(\)"),
        (lambda m: m, r"loss\(\).*\(2, 1\).*\.mean\(\)"),
        (lambda m: m.mean().reshape(1), r"loss\(\).*\(1,\)"),
        (lambda m: m.mean().long(), r"loss\(\).*\btorch\.int64\b"),
        (lambda m: {"loss": 1.0}, r"loss\(\).*\b1\.0\b"),
        (lambda m: m.mean().detach(), r"loss\(\).*\bdetach\b"),
    ],
)
def test_what_is_no_loss(output: Any, message: str, count: int, messages: Messages) -> None:
    module = line()
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1))
    before = bits(dict(module.state_dict()))
    with pytest.raises(ContractError, match=message) as refused:
        stepper.run(lambda batch: output(module(batch)), [torch.ones(2, 3)] * count)
    messages.check(refused.value)
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


# --- what an update gives ---------------------------------------------------------------------------------


class Updates(MLP):
    """Gives what a test wants."""

    def update(self, stepper: Stepper, batches: Sequence[Any]) -> Any:
        return self.give(stepper, batches)


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda self, stepper, batches: None, r"Runner\.update\(\).*\bNone\b"),
        (lambda self, stepper, batches: [stepper.run(self.loss, batches)], r"Runner\.update\(\).*\bloss\b"),
        (lambda self, stepper, batches: self.loss(batches[0]), r"stepper\.run\(self\.loss, batches\)"),
        (lambda self, stepper, batches: stepper.run(self.loss, batches, optimizer="d"), r"'d'.*\bmain\b"),
        (
            lambda self, stepper, batches: stepper.run(lambda b: {**self.loss(b), "skipped": 1.0}, batches),
            r"loss\(\).*'skipped'",
        ),
    ],
)
def test_an_update_that_takes_no_step(give: Any, message: str) -> None:
    runner = built(type("Given", (Updates,), {"give": give}))
    with pytest.raises(ContractError, match=message):
        plain(runner, Still()).fit()


def test_an_update_may_pass_over_a_step_and_give_any_mapping() -> None:
    """A GAN may train its parts in turns."""

    class Turns(Updates):
        def give(self, stepper: Stepper, batches: Sequence[Any]) -> Any:
            return UserDict(stepper.run(self.loss, batches)) if self.progress.step % 2 else {}

    trainer = plain(built(Turns), Still(), until=4)
    assert trainer.fit() == "finished"
    assert trainer.events.row().keys() == {"loss", "accuracy"}


def test_a_loss_that_loses_its_gradient_later() -> None:
    """Not only in the first step it is said in words."""
    module = line()
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1))
    stepper.run(lambda b: module(b).mean(), [torch.ones(2, 3)])
    for count in (1, 2):
        with pytest.raises(ContractError, match=r"loss\(\).*\bdetach\b"):
            stepper.run(lambda b: module(b).mean().detach(), [torch.ones(2, 3)] * count)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16, torch.float16])
def test_a_loss_of_another_type_trains_as_torch_does(kind: torch.dtype) -> None:
    module, by_hand = line(), line()
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1))
    x = torch.ones(2, 3)
    stepper.run(lambda b: module(b).mean().to(kind), [x, x])
    for _ in range(2):
        (by_hand(x).mean().to(kind) / 2).backward()
    torch.optim.SGD(by_hand.parameters(), lr=0.1).step()
    assert bits(dict(module.state_dict())) == bits(dict(by_hand.state_dict()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "graph"}, r"'graph'.*\beager, compile, dry, no_optim"),
        ({"mode": "fast"}, "'fast'"),
        ({"precision": 16}, r"\b16\b.*\b32, \"bf16\" or \"fp16\""),
        ({"precision": "32"}, "'32'"),
        ({"accumulation": 0}, r"\b0\b"),
    ],
)
def test_options_that_there_are_not(options: Any, message: str, messages: Messages) -> None:
    with pytest.raises(ContractError, match=message) as refused:
        Stepper(torch.optim.SGD(line().parameters(), lr=0.1), **options)
    messages.check(refused.value)


# --- modes ------------------------------------------------------------------------------------------------


def test_no_optim_computes_everything_and_moves_nothing() -> None:
    runner = built(Gan)
    optims = {
        "d": Optim(torch.optim.Adam(runner.d.parameters(), lr=0.1), max_grad_norm=1.0),
        "g": torch.optim.LBFGS(runner.g.parameters()),
    }
    before = weights(runner)
    trainer = plain(runner, Still(), until="2ep", stepper=Stepper(optims, mode="no_optim", accumulation=2))
    assert trainer.fit() == "finished"
    assert weights(runner) == before and not trainer.stepper.has_stepped
    assert trainer.events.row().keys() == {"d_loss", "g_loss"}
    assert all(parameter.grad is not None for parameter in runner.parameters())
    assert not trainer.stepper.optimizers["d"].optimizer.state


def test_dry_takes_the_batches_and_calls_no_model() -> None:
    class Never(MLP):
        def update(self, stepper: Stepper, batches: Sequence[Any]) -> Any:
            raise AssertionError

    runner = built(Never)
    before = weights(runner)
    optimizer = torch.optim.SGD(runner.parameters(), lr=0.1)
    trainer = plain(runner, Still(), until="2ep", stepper=Stepper(optimizer, mode="dry", accumulation=2))
    assert trainer.fit() == "finished"
    assert trainer.progress.samples == 52 and trainer.progress.step == 8
    assert weights(runner) == before and trainer.events.row() == {}


def test_who_evaluates_the_loss_by_itself_does_not_train_on_several_ranks(messages: Messages) -> None:
    module = line()
    with pytest.raises(ContractError, match="LBFGS") as refused:
        Stepper(torch.optim.LBFGS(module.parameters()), ranks=Ranks(0, 2))
    messages.check(refused.value)


def test_a_variant_shares_the_optimizers() -> None:
    module = line()
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1), accumulation=4)
    other = stepper.variant(mode="no_optim", accumulation=2)
    assert other.optimizers is stepper.optimizers and other.batches_per_step == 2
    assert (stepper.mode, stepper.batches_per_step) == ("eager", 4)
    before = module.weight.clone()
    other.run(lambda batch: {"loss": module(batch).mean()}, [torch.ones(1, 3)])
    assert torch.equal(module.weight, before), "this mode takes no step"
    stepper.variant().run(lambda batch: {"loss": module(batch).mean()}, [torch.ones(1, 3)])
    assert not torch.equal(module.weight, before)
