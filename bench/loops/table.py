"""Measures loops against the raw loop, alternating in one process."""

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
    """A loop, and the numerics that it shares with the raw loop."""

    name: str
    loop: Loop
    work: Work = Work()
    largest_difference: float = 0.0
    """Allowed difference of a weight from the raw loop, after all steps; 0 requires the same bits."""


def print_table(cases: Sequence[Case], *, rounds: int) -> None:
    """Runs each case, ``rounds`` times after a first time that is not counted, and prints a line for it.

    Raises:
        AssertionError: A loop did not train, or its weights differ from those of the raw loop.
    """
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {rounds} rounds; µs CPU per step: median (min … max)\n")
    print(
        "| case | raw loop | this loop | over raw, µs | ratio CPU | ratio wall |\n|---|---|---|---|---|---|"
    )
    for case in cases:
        batches = new_batches(case.work)
        pairs = [(raw(case.work, batches), _quietly(case, batches)) for _ in range(rounds + 1)][1:]
        for plain, other in pairs:
            require_equal(case.name, case.work, plain.weights, other.weights, within=case.largest_difference)
        plain_us, us = [a.cpu_us for a, _ in pairs], [b.cpu_us for _, b in pairs]
        over = statistics.median(us) - statistics.median(plain_us)
        ratio = statistics.median(us) / statistics.median(plain_us)
        wall = statistics.median(b.wall_us for _, b in pairs) / statistics.median(a.wall_us for a, _ in pairs)
        print(
            f"| {case.name} | {spread(plain_us)} | {spread(us)} | {over:.1f} | {ratio:.3f} | {wall:.3f} |",
            flush=True,
        )


def _quietly(case: Case, batches: list[Any]) -> Outcome:
    """Runs a case with its output sent to /dev/null: bars and consoles still do their work."""
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


def require_equal(
    name: str, work: Work, plain: torch.Tensor, weights: torch.Tensor, *, within: float = 0.0
) -> None:
    """Raises an AssertionError unless a loop has trained, to the weights of the raw loop."""
    before = torch.cat([p.detach().flatten() for p in new_net(work).parameters()])
    difference = float((weights - plain).abs().max())
    assert difference <= within, f"{name}: weights differ by {difference} from raw"
    assert (weights - before).abs().max() > 1e-3, f"{name} has not trained"


def spread(values: Sequence[float]) -> str:
    """Formats median, minimum and maximum."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} … {max(values):.1f})"
