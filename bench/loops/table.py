"""Loops against the raw loop, alternating in one process."""

from __future__ import annotations

import contextlib
import logging
import os
import statistics
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from .raw import raw
from .task import Outcome, Work, new_batches, new_net

Loop = Callable[[Work, list[Any]], Outcome]


class Case(NamedTuple):
    """A loop, and the numerics that it shares with the raw loop beside it."""

    name: str
    loop: Loop
    work: Work = Work()
    largest_difference: float = 0.0
    """That a weight may have from the raw loop's, after all steps; 0 means the same bits."""


def print_table(cases: Sequence[Case], *, rounds: int) -> None:
    """Runs each case, ``rounds`` times after one that does not count, and prints a line for it.

    Raises:
        AssertionError: A loop has not trained, or not to the weights of the raw loop.
    """
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {rounds} rounds; µs CPU per step: median (min … max)\n")
    print("| case | raw loop | with it | over, µs | ratio CPU | ratio wall |\n|---|---|---|---|---|---|")
    for case in cases:
        batches = new_batches(case.work)
        pairs = [(raw(case.work, batches), _quietly(case, batches)) for _ in range(rounds + 1)][1:]
        for plain, other in pairs:
            _check(case, plain.weights, other.weights)
        plain_us, us = [a.cpu_us for a, _ in pairs], [b.cpu_us for _, b in pairs]
        over = statistics.median(us) - statistics.median(plain_us)
        ratio = statistics.median(us) / statistics.median(plain_us)
        wall = statistics.median(b.wall_us for _, b in pairs) / statistics.median(a.wall_us for a, _ in pairs)
        print(
            f"| {case.name} | {_spread(plain_us)} | {_spread(us)} | {over:.1f} | {ratio:.3f} | {wall:.3f} |",
            flush=True,
        )


def _quietly(case: Case, batches: list[Any]) -> Outcome:
    """What bars and consoles print goes to /dev/null: it is made all the same."""
    logging.disable(logging.WARNING)
    with (
        open(os.devnull, "w") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        outcome = case.loop(case.work, batches)
    assert torch.get_num_threads() == 1, f"{case.name} changed the number of threads"
    return outcome


def _check(case: Case, plain: torch.Tensor, weights: torch.Tensor) -> None:
    before = torch.cat([p.detach().flatten() for p in new_net(case.work).parameters()])
    difference = float((weights - plain).abs().max())
    assert difference <= case.largest_difference, f"{case.name}: weights differ by {difference} from raw"
    assert (weights - before).abs().max() > 1e-3, f"{case.name} has not trained"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} … {max(values):.1f})"
