"""A project whose code does what no project should, in the loss of its fifth step."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import roost


def leave() -> NoReturn:
    os._exit(0)


def exit_early() -> NoReturn:
    sys.exit(0)


def spoil() -> None:
    """Takes from its process what it had, and trains on."""
    os.chdir("/")
    os.umask(0o077)
    for signum in (signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, signal.SIG_IGN)
    for fd in (0, 1, 2):
        os.close(fd)


def wait_here() -> None:
    """Reports the moment in a file, and continues once the test allows it."""
    Path("waiting").touch()
    deadline = time.monotonic() + 60
    while not Path("go").exists():
        assert time.monotonic() < deadline, "no test answered"
        time.sleep(0.005)


WAYS = {"none": lambda: None, "leaves": leave, "exits": exit_early, "spoils": spoil, "waits": wait_here}


class Dataset(roost.Dataset):
    def build(self) -> roost.Data:
        x = torch.randn(self.args["samples"], 4, generator=torch.Generator().manual_seed(0))
        return roost.Data(train=TensorDataset(x, (x.sum(1) > 0).float()))


class Runner(roost.Runner):
    def build(self) -> None:
        self.net = nn.Linear(4, 1)
        self.num_losses = 0

    def loss(self, batch: Any) -> Tensor:
        self.num_losses += 1
        if self.num_losses == 5:
            WAYS[self.args["way"]]()
        x, y = batch
        return nn.functional.binary_cross_entropy_with_logits(self.net(x).squeeze(1), y)
