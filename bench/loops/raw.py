"""Plain PyTorch loops, one for each kind of `Work`."""

from __future__ import annotations

from typing import Any

import torch

from .task import Clocked, Outcome, Work, loss_of, new_net, new_optimizer


def raw(work: Work, batches: list[Any], *, fused: bool = False) -> Outcome:
    """Runs the shortest loop with the numerics of ``work``."""
    if work.device != "cpu":
        return _on_device(work, batches, fused=fused)
    if work.mode == "compile":
        return _compiled(work, batches)
    if work.accumulation > 1:
        return _accumulating(work, batches)
    if work.max_grad_norm is not None:
        return _clipping(work, batches)
    net, clocked = new_net(work), Clocked(work, batches)
    optimizer = new_optimizer(work, net.parameters(), fused=fused)
    for x, y in clocked:
        optimizer.zero_grad()
        loss = loss_of(net, x, y)
        loss.backward()
        optimizer.step()
    return clocked.outcome(net)


def _clipping(work: Work, batches: list[Any]) -> Outcome:
    net, clocked = new_net(work), Clocked(work, batches)
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
    net, clocked = new_net(work), Clocked(work, batches)
    optimizer = new_optimizer(work, net.parameters())
    for number, (x, y) in enumerate(clocked, 1):
        loss = loss_of(net, x, y)
        (loss / work.accumulation).backward()
        if number % work.accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
    return clocked.outcome(net)


def _compiled(work: Work, batches: list[Any]) -> Outcome:
    net, clocked = new_net(work), Clocked(work, batches)
    optimizer = new_optimizer(work, net.parameters())
    loss_fn = torch.compile(loss_of)
    for x, y in clocked:
        optimizer.zero_grad()
        loss = loss_fn(net, x, y)
        loss.backward()
        optimizer.step()
    return clocked.outcome(net)


def _on_device(work: Work, batches: list[Any], *, fused: bool) -> Outcome:
    net, clocked = new_net(work), Clocked(work, batches)
    optimizer = new_optimizer(work, net.parameters(), fused=fused)
    loss_fn = torch.compile(loss_of) if work.mode == "compile" else loss_of
    for x, y in clocked:
        x, y = x.to(work.device, non_blocking=True), y.to(work.device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(work.device, torch.bfloat16, enabled=work.bf16):
            loss = loss_fn(net, x, y)
        loss.backward()
        optimizer.step()
    return clocked.outcome(net)
