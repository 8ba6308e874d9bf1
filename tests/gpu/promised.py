"""A process that keeps to a promise of card memory, for the tests beside it.

    python -m tests.gpu.promised MB fill|hold

Loads what a training loads (matrix products, convolutions, bf16), as `roost.worker` limits it. ``fill`` then
takes memory until there is none left. Both compute once more when a line comes. Prints JSON, a line for each
state.
"""

from __future__ import annotations

import json
import sys

import torch
from torch import nn

from roost.worker import card_memory

DEVICE = "cuda:0"
PIECE = 64 << 20


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def compute() -> None:
    """What loads cuBLAS, cuDNN and their kernels."""
    net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.LazyLinear(256))
    net.to(DEVICE)
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("cuda", dtype, enabled=dtype is not torch.float32):
            net(torch.randn(8, 3, 64, 64, device=DEVICE)).float().square().mean().backward()
    torch.cuda.synchronize()


def main() -> None:
    reserved_mb, what = float(sys.argv[1]), sys.argv[2]
    torch.cuda.set_device(0)
    card_memory.limit_to_reservation(reserved_mb, DEVICE, is_rank=True)
    compute()
    card_memory.limit_to_reservation(reserved_mb, DEVICE, is_rank=True)  # as at the first row
    held, failure = [], None
    while what == "fill" and failure is None:
        try:
            held.append(torch.empty(PIECE, dtype=torch.uint8, device=DEVICE))
        except torch.OutOfMemoryError as error:
            failure = error
    usage = card_memory.usage(failure)
    say(state="full" if failure is not None else "holds", pieces=len(held), usage=usage)
    sys.stdin.readline()
    compute_fails = False
    try:
        compute()
    except torch.OutOfMemoryError:
        compute_fails = True
    say(state="end", compute_fails=compute_fails)


if __name__ == "__main__":
    main()
