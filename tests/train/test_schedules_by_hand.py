"""Learning rates of a Trainer against the loop that people write: the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import lr_scheduler

from roost.config.settings import parse_settings
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.hooks import Schedule, Validate
from roost.train.optim.optimizer import LR_SCALE, Optim
from roost.train.optim.optimizer_config import build_optimizers
from roost.train.step import seeding
from roost.train.step.stepper import Stepper
from tests.train.parts import MLP, Still, built, loader, plain, weights

SCHEDULERS = "torch.optim.lr_scheduler."
EPOCHS, STEPS = 3, 21


def epochs() -> Iterator[Iterator[tuple[Tensor, Tensor]]]:
    data, plan = Still(), BatchPlan(26, 4, seed=3)
    seeding.seed_all(seeding.mix(3, "train"))
    for epoch in range(EPOCHS):
        yield ((data.x[i], data.y[i]) for i, _ in plan.batches(epoch))


def step(net: Any, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor]) -> None:
    optimizer.zero_grad()
    x, y = batch
    functional.cross_entropy(net.net(x), y).backward()
    optimizer.step()


def valid_loss(net: Any) -> float:
    """As the validation of a trainer draws it: no random number of the training is used up."""
    net.eval()
    data = Still(8, seed=9)
    with torch.no_grad():
        losses = functional.cross_entropy(net.net(data.x), data.y, reduction="none")
    net.train()
    return float(losses.double().sum()) / 8


def trained(net: MLP, optim: Optim) -> MLP:
    hooks, loaders = [Schedule(), Validate("1ep")], {"valid": loader(Still(8, seed=9), 8, shuffle=False)}
    trainer = plain(net, Still(), hooks, until=f"{EPOCHS}ep", loaders=loaders, stepper=Stepper(optim))
    assert trainer.fit() == "finished"
    return net


def from_config(net: nn.Module, **main: Any) -> Optim:
    optimizers = {"main": {"class": "torch.optim.SGD", "lr": 0.1, "momentum": 0.9, "fused": False, **main}}
    values = {"runner": "a.py:A", "dataset": "b.py:B", "max_steps": STEPS, "optimizers": optimizers}
    return build_optimizers(
        net, parse_settings(values).optimizers, totals={"total_steps": STEPS, "steps_per_epoch": 7}
    )["main"]


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def test_by_step() -> None:
    by_hand = built(MLP)
    optimizer = sgd(by_hand)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    for epoch in epochs():
        for batch in epoch:
            step(by_hand, optimizer, batch)
            scheduler.step()
    ours = built(MLP)
    cosine = {"class": SCHEDULERS + "CosineAnnealingLR", "T_max": "${total_steps}"}
    trained(ours, from_config(ours, scheduler=cosine))
    assert weights(ours) == weights(by_hand)


def test_by_epoch() -> None:
    by_hand = built(MLP)
    optimizer = sgd(by_hand)
    scheduler = lr_scheduler.ExponentialLR(optimizer, gamma=0.3)
    for epoch in epochs():
        for batch in epoch:
            step(by_hand, optimizer, batch)
        scheduler.step()
    ours = built(MLP)
    falling = {"class": SCHEDULERS + "ExponentialLR", "gamma": 0.3, "unit": "epoch"}
    trained(ours, from_config(ours, scheduler=falling))
    assert weights(ours) == weights(by_hand)


def test_by_validation() -> None:
    by_hand = built(MLP)
    optimizer = sgd(by_hand)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0, threshold=0.9)
    for epoch in epochs():
        for batch in epoch:
            step(by_hand, optimizer, batch)
        scheduler.step(valid_loss(by_hand))
    assert optimizer.param_groups[0]["lr"] < 0.1, "it was never reduced"
    ours = built(MLP)
    plateau = {"class": SCHEDULERS + "ReduceLROnPlateau", "factor": 0.1, "patience": 0, "threshold": 0.9}
    trained(ours, from_config(ours, scheduler={**plateau, "unit": "validation", "monitor": "valid/loss"}))
    assert weights(ours) == weights(by_hand)


def test_a_warm_up_before_it() -> None:
    """In float64 the factors (n+1)/5 times the rate are those of the config to the last bit."""
    by_hand = built(MLP)
    optimizer = sgd(by_hand)
    number = 0
    for epoch in epochs():
        for batch in epoch:
            optimizer.param_groups[0]["lr"] = 0.1 * ((number + 1) / 5) if number < 4 else 0.1
            step(by_hand, optimizer, batch)
            number += 1
    ours = built(MLP)
    constant = {"class": SCHEDULERS + "ConstantLR", "factor": 1.0, "warmup_steps": 4}
    trained(ours, from_config(ours, scheduler=constant))
    assert weights(ours) == weights(by_hand)


@pytest.mark.parametrize("whole", [1.0, 0.5])
def test_scales_of_an_optimizer_and_of_a_group(whole: float) -> None:
    """Whatever the scheduler makes of the rate; it does not see them."""
    by_hand = built(MLP)
    head = by_hand.net[3]
    own = {id(p) for p in head.parameters()}
    rest = [p for p in by_hand.parameters() if id(p) not in own]
    optimizer = torch.optim.SGD([{"params": rest}, {"params": head.parameters()}], lr=0.1, momentum=0.9)
    rate = 0.1
    for epoch in epochs():
        for batch in epoch:
            for group, scale in zip(optimizer.param_groups, (whole, 0.3), strict=True):
                group["lr"] = rate * scale
            step(by_hand, optimizer, batch)
        rate *= 0.3
    ours = built(MLP)
    optim = from_config(
        ours,
        lr_scale=whole,
        groups=[{"params": "net.3.*", "lr_scale": 0.3}],
        scheduler={"class": SCHEDULERS + "ExponentialLR", "gamma": 0.3, "unit": "epoch"},
    )
    assert [group.get(LR_SCALE, 1.0) for group in optim.optimizer.param_groups] == [whole, 0.3]
    assert optim.lr == 0.1 * whole
    trained(ours, optim)
    assert weights(ours) == weights(by_hand)
    assert [group["lr"] for group in optim.optimizer.param_groups] == [rate] * 2


def test_a_schedule_counts_the_steps_of_the_run_however_seldom_the_optimizer_moves() -> None:
    """Without torch's warning that it begins before the optimizer: warnings are errors here."""
    by_hand = built(MLP)
    optimizer = sgd(by_hand)
    number = 0
    for epoch in epochs():
        for batch in epoch:
            number += 1
            if number % 4 == 0:
                step(by_hand, optimizer, batch)
            optimizer.param_groups[0]["lr"] *= 0.9
    ours = built(MLP)
    falling = {"class": SCHEDULERS + "ExponentialLR", "gamma": 0.9}
    trained(ours, from_config(ours, every_n_steps=4, scheduler=falling))
    assert weights(ours) == weights(by_hand)
