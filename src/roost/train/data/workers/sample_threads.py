"""The number of threads on which samples are computed: one, in every process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread() -> Iterator[None]:
    """Sets torch to one thread inside, as in a worker process: a sum over a large tensor has other bits on
    two threads, and a batch must not depend on the process that fetched it. Costs 1 µs."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
