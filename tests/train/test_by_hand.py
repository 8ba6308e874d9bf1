"""A Trainer against the loop that people write: the same bits, feature by feature."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.failures.recovery import Recovery
from roost.train.optim.optimizer import Optim
from roost.train.step import seeding
from roost.train.step.nonfinite_check import NonfiniteGuard
from roost.train.step.stepper import Stepper
from tests.train.parts import (
    MLP,
    STEPS_PER_EPOCH,
    Classifier,
    Gan,
    Still,
    bits,
    built,
    loader,
    plain,
    weights,
)

Batch = tuple[Tensor, Tensor]
Epochs = Sequence[Sequence[Batch]]
Optims = dict[str, Optim]
cross_entropy = functional.cross_entropy


class Normed(Classifier):
    """With batch norm, whose buffers change in forward."""

    def build(self) -> None:
        self.net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


class Steep(MLP):
    """Whose gradients overflow in fp16 until the scale is small enough."""

    def loss(self, batch: Any) -> Tensor:
        x, y = batch
        return 40 * cross_entropy(self.net(x), y)


class Weighing(MLP):
    """Each batch counts by what its samples weigh."""

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        x, y = batch
        weight = x[:, 0].abs()
        losses = cross_entropy(self.net(x), y, reduction="none")
        return {"loss": (losses * weight).sum() / weight.sum(), "weight": weight.sum()}


class Halves(MLP):
    """With two optimizers, that both move on one loss."""

    def build(self) -> None:
        super().build()
        self.first, self.last = self.net[0], self.net[3]


def adamw(module: nn.Module, **arguments: Any) -> Optims:
    return {"main": Optim(torch.optim.AdamW(module.parameters(), lr=0.02, **arguments))}


def momentum(module: nn.Module, **arguments: Any) -> Optims:
    return {"main": Optim(torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, **arguments))}


def clipped(kind: float) -> Callable[[nn.Module], Optims]:
    def made(module: nn.Module) -> Optims:
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.02)
        return {"main": Optim(optimizer, max_grad_norm=0.3, grad_norm_type=kind)}

    return made


def halves(every: int = 1) -> Callable[[Any], Optims]:
    def made(module: Any) -> Optims:
        first = torch.optim.SGD(module.first.parameters(), lr=0.1, momentum=0.9)
        last = torch.optim.Adam(module.last.parameters(), lr=0.02)
        return {"first": Optim(first), "last": Optim(last, every_n_steps=every)}

    return made


def gan(every: int = 1) -> Callable[[Any], Optims]:
    def made(module: Any) -> Optims:
        d, g = (torch.optim.Adam(part.parameters(), lr=0.02) for part in (module.d, module.g))
        return {"d": Optim(d, max_grad_norm=0.5), "g": Optim(g, every_n_steps=every)}

    return made


def of(optims: Optims) -> tuple[torch.optim.Optimizer, ...]:
    return tuple(optim.optimizer for optim in optims.values())


# --- the loops --------------------------------------------------------------------------------------------


def simple(net: Any, optims: Optims, epochs: Epochs) -> None:
    (optimizer,) = of(optims)
    for epoch in epochs:
        for x, y in epoch:
            optimizer.zero_grad()
            cross_entropy(net.net(x), y).backward()
            optimizer.step()


def in_bf16(k: int) -> Callable[[Any, Optims, Epochs], None]:
    def loop(net: Any, optims: Optims, epochs: Epochs) -> None:
        (optimizer,) = of(optims)
        for epoch in epochs:
            for window in windows(epoch, k):
                optimizer.zero_grad()
                for x, y in window:
                    with torch.autocast("cpu", torch.bfloat16):
                        loss = cross_entropy(net.net(x), y)
                    (loss / len(window)).backward()
                optimizer.step()

    return loop


def in_fp16(max_grad_norm: float | None, k: int = 1) -> Callable[[Any, Optims, Epochs], None]:
    def loop(net: Any, optims: Optims, epochs: Epochs) -> None:
        (optimizer,) = of(optims)
        scaler = torch.amp.GradScaler("cpu")
        for epoch in epochs:
            for window in windows(epoch, k):
                optimizer.zero_grad()
                for x, y in window:
                    with torch.autocast("cpu", torch.float16):
                        loss = 40 * cross_entropy(net.net(x), y) / len(window)
                    scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                if max_grad_norm is not None:
                    nn.utils.clip_grad_norm_(net.parameters(), max_grad_norm)
                scaler.step(optimizer)
                scaler.update()
        assert scaler.get_scale() < 2.0**16, "nothing overflowed"
        optims["main"].scaler = scaler

    return loop


def windows(epoch: Sequence[Batch], k: int) -> Iterator[Sequence[Batch]]:
    for first in range(0, len(epoch), k):
        yield epoch[first : first + k]


def accumulating(k: int) -> Callable[[Any, Optims, Epochs], None]:
    """As it is usually written, for batches of one size."""

    def loop(net: Any, optims: Optims, epochs: Epochs) -> None:
        (optimizer,) = of(optims)
        for epoch in epochs:
            for window in windows(epoch, k):
                for x, y in window:
                    (cross_entropy(net.net(x), y) / len(window)).backward()
                optimizer.step()
                optimizer.zero_grad()

    return loop


def accumulating_by_samples(net: Any, optims: Optims, epochs: Epochs) -> None:
    (optimizer,) = of(optims)
    for epoch in epochs:
        for window in windows(epoch, 4):
            total = sum(len(y) for _, y in window)
            for x, y in window:
                (cross_entropy(net.net(x), y) * (len(y) / total)).backward()
            optimizer.step()
            optimizer.zero_grad()


def accumulating_by_weight(net: Any, optims: Optims, epochs: Epochs) -> None:
    (optimizer,) = of(optims)
    for epoch in epochs:
        for window in windows(epoch, 3):
            total: Any = 0.0
            for batch in window:
                found = net.loss(batch)
                (found["loss"] * found["weight"]).backward()
                total = total + found["weight"]
            for parameter in net.parameters():
                parameter.grad /= total
            optimizer.step()
            optimizer.zero_grad()


def clipping(kind: float) -> Callable[[Any, Optims, Epochs], None]:
    def loop(net: Any, optims: Optims, epochs: Epochs) -> None:
        (optimizer,) = of(optims)
        for epoch in epochs:
            for x, y in epoch:
                optimizer.zero_grad()
                cross_entropy(net.net(x), y).backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.3, norm_type=kind)
                optimizer.step()

    return loop


def together(every: int) -> Callable[[Any, Optims, Epochs], None]:
    def loop(net: Any, optims: Optims, epochs: Epochs) -> None:
        first, last = of(optims)
        for step, (x, y) in enumerate((batch for epoch in epochs for batch in epoch), 1):
            first.zero_grad()
            last.zero_grad()
            cross_entropy(net.net(x), y).backward()
            first.step()
            if step % every == 0:
                last.step()

    return loop


def in_turn(every: int) -> Callable[[Any, Optims, Epochs], None]:
    def loop(net: Any, optims: Optims, epochs: Epochs) -> None:
        d, g = of(optims)
        for step, batch in enumerate((batch for epoch in epochs for batch in epoch), 1):
            d.zero_grad()
            net.d_loss(batch).backward()
            nn.utils.clip_grad_norm_(net.d.parameters(), 0.5)
            d.step()
            if step % every == 0:
                g.zero_grad()
                net.g_loss(batch).backward()
                g.step()

    return loop


def with_closure(net: Any, optims: Optims, epochs: Epochs) -> None:
    (optimizer,) = of(optims)
    for epoch in epochs:
        for x, y in epoch:

            def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
                optimizer.zero_grad()
                loss = cross_entropy(net.net(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)  # type: ignore[arg-type]


def skipping(net: Any, optims: Optims, epochs: Epochs) -> None:
    (optimizer,) = of(optims)
    skipped = 0
    for epoch in epochs:
        for x, y in epoch:
            before = [buffer.clone() for buffer in net.buffers()]
            optimizer.zero_grad()
            loss = cross_entropy(net.net(x), y)
            loss.backward()
            if loss.isfinite() and all(p.grad.isfinite().all() for p in net.parameters()):
                optimizer.step()
                continue
            skipped += 1
            for buffer, was in zip(net.buffers(), before, strict=True):
                buffer.copy_(was)
    assert skipped == 4, skipped


# --- the table --------------------------------------------------------------------------------------------


class Case(NamedTuple):
    loop: Callable[[Any, Optims, Epochs], None]
    optims: Callable[[Any], Optims] = adamw
    runner: type[Any] = MLP
    data: Callable[[], Still] = Still
    options: Mapping[str, Any] = {}
    skips: bool = False


def even() -> Still:
    """6 batches of 4."""
    return Still(24)


def torn() -> Still:
    """A NaN in the first batch, and one later."""
    data = Still()
    order = [draw.indices for draw in BatchPlan(len(data), 4, seed=3).batches(0)]
    data.x[order[0][1]] = float("nan")
    data.x[order[4][2], 3] = float("nan")
    return data


CASES = {
    "nothing": Case(simple),
    "fused": Case(simple, lambda module: adamw(module, fused=True)),
    "bf16": Case(in_bf16(1), options={"precision": "bf16"}),
    "bf16 accumulating": Case(in_bf16(3), data=even, options={"precision": "bf16", "accumulation": 3}),
    "fp16": Case(in_fp16(None), adamw, Steep, options={"precision": "fp16"}),
    "fp16 clipped": Case(in_fp16(0.3), clipped(2.0), Steep, options={"precision": "fp16"}),
    "fp16 accumulating": Case(
        in_fp16(None, 3), adamw, Steep, even, options={"precision": "fp16", "accumulation": 3}
    ),
    "fp16 fused": Case(
        in_fp16(None), lambda module: adamw(module, fused=True), Steep, options={"precision": "fp16"}
    ),
    **{f"accumulation {k}": Case(accumulating(k), data=even, options={"accumulation": k}) for k in (2, 3, 4)},
    "a short window": Case(accumulating_by_samples, options={"accumulation": 4}),
    "weights": Case(accumulating_by_weight, runner=Weighing, data=even, options={"accumulation": 3}),
    **{f"clipping {kind}": Case(clipping(kind), clipped(kind)) for kind in (1.0, 2.0, float("inf"))},
    "two optimizers": Case(together(1), halves(), Halves),
    "two optimizers, one seldom": Case(together(3), halves(3), Halves),
    "gan": Case(in_turn(1), gan(), Gan),
    "gan, one seldom": Case(in_turn(2), gan(2), Gan),
    "closure": Case(
        with_closure, lambda module: {"main": Optim(torch.optim.LBFGS(module.parameters(), lr=0.1))}, Normed
    ),
    "skipping": Case(skipping, adamw, Normed, torn, skips=True),
    "skipping, fused": Case(skipping, lambda m: adamw(m, fused=True), Normed, torn, skips=True),
    "skipping, momentum": Case(skipping, momentum, Normed, torn, skips=True),
    "skipping, fused momentum": Case(skipping, lambda m: momentum(m, fused=True), Normed, torn, skips=True),
}


def epochs_of(data: Still) -> Epochs:
    """The batches of two epochs, as `parts.loader` makes them."""
    plan = BatchPlan(len(data), 4, seed=3)
    return [[(data.x[i], data.y[i]) for i, _ in plan.batches(epoch)] for epoch in (0, 1)]


def state(optim: Optim) -> Any:
    scaler = optim.scaler.state_dict() if optim.scaler is not None else None
    return bits({"optimizer": optim.optimizer.state_dict(), "scaler": scaler})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_trainer_equals_a_loop_by_hand(case: Case) -> None:
    data, by_hand, ours = case.data(), built(case.runner), built(case.runner)
    theirs, optims = case.optims(by_hand), case.optims(ours)
    seeding.seed_all(seeding.mix(3, "train"))
    case.loop(by_hand, theirs, epochs_of(data))
    stepper = Stepper(optims, guard=NonfiniteGuard(ours) if case.skips else None, **case.options)
    recovery = Recovery(on_non_finite="skip") if case.skips else None
    trainer = plain(ours, data, until="2ep", stepper=stepper, recovery=recovery)
    assert trainer.fit() == "finished"
    assert weights(ours) == weights(by_hand)
    for name in theirs:
        assert state(optims[name]) == state(theirs[name]), name


class Doubles(MLP):
    """In float64, without dropout; weighs its samples, or not."""

    weighs = False

    def build(self) -> None:
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        x = batch[0].double()
        losses = (self.net(x).squeeze(1) - x.sum(1)).square()
        if not self.weighs:
            return {"loss": losses.mean()}
        weights = x[:, 0].abs()
        return {"loss": (losses * weights).sum() / weights.sum(), "weight": weights.sum()}


@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_trainer_that_accumulates_equals_one_with_large_batches(count: int, weighs: bool) -> None:
    """Over epochs whose last window is short, with clipping, momentum, and the means of a row."""

    def trained(accumulation: int, batch_size: int) -> tuple[Doubles, dict[str, float]]:
        runner = built(Doubles)
        runner.weighs = weighs
        optimizer = torch.optim.SGD(runner.parameters(), lr=0.02, momentum=0.9)
        stepper = Stepper(Optim(optimizer, max_grad_norm=2.0), accumulation=accumulation)
        loaders = {"train": loader(Still(), batch_size)}
        trainer = plain(runner, Still(), until="3ep", stepper=stepper, loaders=loaders)
        trainer.fit()
        assert trainer.progress.step == 3 * -(-STEPS_PER_EPOCH // count)
        return runner, trainer.events.row()

    ours, row = trained(count, 4)
    by_hand, wanted = trained(1, 4 * count)
    for one, other in zip(ours.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    assert row == pytest.approx(wanted, abs=1e-12)
    assert row["grad_norm"] > 2.0, "nothing was clipped"
