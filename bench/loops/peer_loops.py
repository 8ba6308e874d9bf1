"""Peers whose loop or step is the user's code: Fabric, Accelerate, Ignite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accelerate import Accelerator
from ignite.engine import Engine, Events
from ignite.handlers import ProgressBar
from ignite.metrics import RunningAverage
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, IterableDataset

from .task import Clocked, Outcome, Work, loss_of, new_net, new_optimizer


def fabric(work: Work, batches: list[Any]) -> Outcome:
    """Trains with a model and an optimizer set up by Fabric; no logger."""
    net, clocked = new_net(work), Clocked(work, batches)
    fabric = Fabric(accelerator="cpu", devices=1)
    model, optimizer = fabric.setup(net, new_optimizer(work, net.parameters()))
    for x, y in clocked:
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        fabric.backward(loss)
        optimizer.step()
    return clocked.outcome(net)


class _Stream(IterableDataset[Any]):
    def __init__(self, clocked: Clocked) -> None:
        self._clocked = clocked

    def __iter__(self) -> Iterator[Any]:
        return iter(self._clocked)


def accelerate(work: Work, batches: list[Any]) -> Outcome:
    """Trains with a prepared model and optimizer, and unprepared batches; no tracker."""
    return _accelerate(work, Clocked(work, batches), prepare_batches=False)


def accelerate_loader(work: Work, batches: list[Any]) -> Outcome:
    """Trains with batches from a prepared DataLoader, as the guide of Accelerate recommends."""
    return _accelerate(work, Clocked(work, batches), prepare_batches=True)


def _accelerate(work: Work, clocked: Clocked, *, prepare_batches: bool) -> Outcome:
    net = new_net(work)
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(net, new_optimizer(work, net.parameters()))
    source: Any = clocked
    if prepare_batches:
        source = accelerator.prepare(DataLoader(_Stream(clocked), batch_size=None))
    for x, y in source:
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            accelerator.backward(loss)
            optimizer.step()
    return clocked.outcome(net)


def ignite(work: Work, batches: list[Any]) -> Outcome:
    """Trains with an engine around the user's step; nothing attached."""
    return _ignite(work, batches, attached=False)


def ignite_default(work: Work, batches: list[Any]) -> Outcome:
    """Trains with ``loss.item()``, as Ignite's trainer does; running mean, bar, a line every 100 steps."""
    return _ignite(work, batches, attached=True)


def _ignite(work: Work, batches: list[Any], *, attached: bool) -> Outcome:
    net, clocked = new_net(work), Clocked(work, batches)
    optimizer = new_optimizer(work, net.parameters())

    def update(engine: Engine, batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(net, *batch)
        loss.backward()
        optimizer.step()
        return loss.item() if attached else loss

    engine = Engine(update)
    if attached:
        RunningAverage(output_transform=lambda value: value).attach(engine, "loss")
        ProgressBar().attach(engine, ["loss"])
        engine.add_event_handler(
            Events.ITERATION_COMPLETED(every=100), lambda engine: print(engine.state.metrics["loss"])
        )
    engine.run(clocked, max_epochs=1)
    return clocked.outcome(net)
