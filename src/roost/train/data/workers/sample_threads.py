"""On how many threads samples are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread() -> Iterator[None]:
    """Torch computes on one thread inside, as it does in a worker process: a sum over a large tensor is
    another one on two threads, and a batch must not depend on who fetched it. Costs 1 µs."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
