"""The call of torch at which a value first is not finite."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from roost.base.traceback_frames import ProjectFiles
from roost.train.step.fast_ops import backward
from roost.worker.debug.nonfinite_trace import NonFiniteTracer, NotFinite
from tests.messages import Messages

OWN = ProjectFiles([Path(__file__).parent])
BATCH = torch.arange(1.0, 13.0).reshape(3, 4)


class Model(nn.Module):
    def __init__(self, loss: Callable[[Model, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 4)
        self.function = loss

    def loss(self, batch: Any) -> Tensor:
        return self.function(self, batch)


def found(
    loss: Callable[[Model, Any], Tensor], batch: Any = BATCH, model: Model | None = None
) -> NonFiniteTracer:
    """The watch of a step that fails, after a first pass."""
    model = model or Model(loss)
    watch = NonFiniteTracer(OWN, model, [batch])
    with pytest.raises(NotFinite), watch:
        backward(model.loss(batch))
    return watch


def stopped(loss: Callable[[Model, Any], Tensor], batch: Any = BATCH, model: Model | None = None) -> str:
    """The innermost own function and the words of a second pass, which stops at what the first one found."""
    model = model or Model(loss)
    first = found(loss, batch, model).origins[0]
    with pytest.raises(NotFinite) as error, NonFiniteTracer(OWN, model, [batch], stop_at=first):
        backward(model.loss(batch))
    own = [entry.name for entry in error.traceback if str(entry.path) == __file__]
    assert first.text == str(error.value) and first.place.startswith("test_nonfinite_trace.py:")
    return f"{own[-1] if own[-1] != '__torch_function__' else own[-2]}: {first.text}"


def of_a_log(model: Model, x: Tensor) -> Tensor:
    mask = torch.full((4,), float("-inf"))
    accuracy = (x * 0) / (x * 0)  # not finite either, and not what the loss is made of
    return torch.log(model.net(x) - 1e3).mean() + 0 * len(mask) + 0 * len(accuracy)


def of_a_softmax(model: Model, x: Tensor) -> Tensor:
    scores = model.net(x).masked_fill(torch.ones(4, dtype=torch.bool), float("-inf"))
    return scores.softmax(-1).sum()


def of_a_number(model: Model, x: Tensor) -> Tensor:
    return model.net(x).mean() * float("nan")


def of_an_overflow(model: Model, x: Tensor) -> Tensor:
    return (model.net(x) * 1e30).square().mean()


def backward_of_a_root(model: Model, x: Tensor) -> Tensor:
    y = model.net(x)
    return torch.sqrt((y * 0).sum()) + y.mean()


def backward_behind_a_choice(model: Model, x: Tensor) -> Tensor:
    y = model.net(x)
    return torch.where(y * 0 == 0, y, y / (y * 0)).sum()


def plain(model: Model, x: Tensor) -> Tensor:
    return functional.mse_loss(model.net(x), torch.zeros(3, 4))


@pytest.mark.parametrize(
    ("loss", "facts"),
    [
        (of_a_log, "log .*nan"),
        (of_a_softmax, "softmax .*nan.* inf"),
        (of_a_number, "mul .*nan"),
        (of_an_overflow, "square .*inf"),
        (backward_of_a_root, "sqrt .*inf"),
        (backward_behind_a_choice, "div .*nan"),
    ],
)
def test_it_stops_in_the_line_that_made_it(
    loss: Callable[[Model, Tensor], Tensor], facts: str, messages: Messages
) -> None:
    said = stopped(loss)
    assert re.match(rf"{loss.__name__}: .*\b{facts}", said)
    messages.check(said)


def test_what_the_loss_is_not_made_of_comes_behind() -> None:
    assert [origin.text.split()[0] for origin in found(of_a_log).origins] == ["log", "div", "full"]


def test_a_batch_that_holds_it_is_named(messages: Messages) -> None:
    def loss(model: Model, batch: dict[str, Any]) -> Tensor:
        return functional.mse_loss(model.net(batch["x"]), batch["y"][0])

    x = BATCH.clone()
    x[1, 2] = float("nan")
    said = stopped(loss, {"x": x, "y": [BATCH]})
    assert re.match(r"loss: linear .*batch\['x'\] .*1 of 12 ", said)
    messages.check(said)


def test_labels_that_are_missing_on_purpose_are_not_blamed() -> None:
    labels = torch.tensor([1.0, float("nan"), 2.0])

    def loss(model: Model, batch: Any) -> Tensor:
        x, y = batch
        known = ~y.isnan()
        return ((model.net(x)[:, 0] - y)[known] * 1e30).square().sum()

    assert re.match("loss: square .*inf", stopped(loss, [BATCH, labels]))


def test_weights_are_blamed_first(messages: Messages) -> None:
    model = Model(plain)
    with torch.no_grad():
        model.net.bias[0] = float("inf")
    said = stopped(plain, model=model)
    assert re.match(r"plain: linear .*net\.bias .*1 of 4 ", said)
    messages.check(said)


def test_reading_an_attribute_is_no_computation() -> None:
    def loss(model: Model, x: Tensor) -> Tensor:
        assert model.net.bias.requires_grad and model.net.weight.grad is None
        assert model.net.bias.data.shape == (4,)
        return (x @ model.net.weight.T + model.net.bias).mean()

    model = Model(loss)
    with torch.no_grad():
        model.net.weight[0, 0] = float("nan")
        model.net.bias[0] = float("nan")
    first, second = (origin.text for origin in found(loss, model=model).origins)
    assert re.match(r"matmul .*net\.weight .*1 of 16 ", first)
    assert re.match(r"add .*net\.bias .*1 of 4 ", second)


def test_a_step_that_is_well_is_left_alone() -> None:
    model, other = Model(plain), Model(plain)
    with NonFiniteTracer(OWN, model, [BATCH]):
        backward(model.loss(BATCH))
    backward(other.loss(BATCH))
    assert all(
        torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), other.parameters(), strict=True)
    )


def test_gradients_may_be_left_to_a_scaler() -> None:
    model = Model(backward_of_a_root)
    with NonFiniteTracer(OWN, model, [BATCH], backward=False):
        backward(model.loss(BATCH))
    assert not all(bool(p.grad.isfinite().all()) for p in model.parameters())


def test_it_looks_into_a_function_of_the_persons_own() -> None:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * float("nan")

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient

    def loss(model: Model, x: Tensor) -> Tensor:
        return Bad.apply(model.net(x)).mean()

    assert re.match("forward: mul .*nan", stopped(loss))


def test_the_weights_of_a_step_in_two_parts() -> None:
    """Two losses in one step: the second one is looked at, too."""
    model = Model(of_a_log)
    with pytest.raises(NotFinite, match=r"loss .*nan"), NonFiniteTracer(OWN, model, [BATCH]):
        backward(plain(model, BATCH))
        backward(of_a_log(model, BATCH))
