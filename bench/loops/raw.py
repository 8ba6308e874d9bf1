"""The loops that people write by hand, one for each kind of `Work`."""

from __future__ import annotations

from typing import Any

import torch

from .task import Clocked, Outcome, Work, loss_of, new_net, new_optimizer


def raw(work: Work, batches: list[Any]) -> Outcome:
    """The loop with the numerics of ``work``, and no line that they do not need."""
    if work.accumulation > 1:
        return _accumulating(work, batches)
    if work.max_grad_norm is not None:
        return _clipping(work, batches)
    net, clocked = new_net(), Clocked(batches)
    optimizer = new_optimizer(work, net.parameters())
    for x, y in clocked:
        optimizer.zero_grad()
        loss = loss_of(net, x, y)
        loss.backward()
        optimizer.step()
    return clocked.outcome(net)


def _clipping(work: Work, batches: list[Any]) -> Outcome:
    net, clocked = new_net(), Clocked(batches)
    optimizer = new_optimizer(work, net.parameters())
    for x, y in clocked:
        optimizer.zero_grad()
        if work.bf16:
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(net, x, y)
        else:
            loss = loss_of(net, x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), work.max_grad_norm)
        optimizer.step()
    return clocked.outcome(net)


def _accumulating(work: Work, batches: list[Any]) -> Outcome:
    net, clocked = new_net(), Clocked(batches, accumulation=work.accumulation)
    optimizer = new_optimizer(work, net.parameters())
    for number, (x, y) in enumerate(clocked, 1):
        loss = loss_of(net, x, y)
        (loss / work.accumulation).backward()
        if number % work.accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
    return clocked.outcome(net)
