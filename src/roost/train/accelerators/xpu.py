"""Intel's GPUs. Never run: no machine with one was available.

So its copies wait and the host measures its time, as for a type without a file: a wrong order of copies would
tear a checkpoint silently. `torch.xpu` has what `copies_concurrently` and `times_events` need; they may be
set once the tests have passed on a card.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from roost.train.accelerators.accelerator import Accelerator


class Xpu(Accelerator):
    """XPU, mostly as `torch.accelerator` answers for it."""

    reports_memory = True
    is_nondeterministic = True
    collective_backend = "xccl"

    def __init__(self) -> None:
        super().__init__("xpu", "XPU")

    def model(self, device: torch.device | str) -> str | None:
        return torch.xpu.get_device_name(device)

    def generators(self) -> Sequence[torch.Generator]:
        found: Sequence[torch.Generator] = torch.xpu.default_generators
        return found

    def profiler_activity(self) -> torch.profiler.ProfilerActivity | None:
        return torch.profiler.ProfilerActivity.XPU
