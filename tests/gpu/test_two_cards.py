"""What only a machine with two cards shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from roost.config.settings import parse_settings
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.hooks import Validate
from roost.worker import torch_settings
from tests.project.projects import VALUES
from tests.train.parts import MLP, Points, StopAt, built, loader, plain, state_of

pytestmark = pytest.mark.needs_gpu(2)
SECOND = torch.device("cuda", 1)


def trained(folder: Path, *hooks: object) -> object:
    runner = built(MLP).to(SECOND)
    points = Points()
    trainer = plain(
        runner,
        points,
        [Validate(2), *hooks],  # type: ignore[list-item]
        until=8,
        loaders={"valid": loader(points, 8, shuffle=False)},
        checkpoints=Checkpoints(folder / "Checkpoints"),
    )
    trainer.fit()
    return {name: state for name, state in state_of(trainer).items() if name != "trainer"}


def test_dropout_on_the_second_card_goes_on_after_a_validation_and_a_resume(tmp_path: Path) -> None:
    """Its generator is the one that is saved and restored, and not that of the first card."""
    torch.cuda.set_device(0)
    whole = trained(tmp_path / "whole")
    torch.cuda.set_device(0)
    trained(tmp_path / "cut", StopAt(4))
    torch.cuda.manual_seed_all(99)
    assert trained(tmp_path / "cut") == whole
    torch.cuda.set_device(0)


def test_a_worker_makes_its_card_the_current_one() -> None:
    torch_settings.apply(parse_settings(VALUES), device="cuda:1", first=None)
    assert torch.cuda.current_device() == 1
    torch.cuda.set_device(0)


PINS = """
import torch
from tests.gpu.test_batches import Numbered
from tests.train.parts import loader
torch.cuda.set_device(1)
torch.ones(1, device="cuda:1")
reader = loader(Numbered(), 8, num_workers=1, pin_memory=True)
for batch, _ in zip(reader.epochs(), range(20)):
    batch.value[0].to("cuda:1", non_blocking=True)
reader.close()
print(torch._C._cuda_hasPrimaryContext(0))
"""


def test_the_thread_that_pins_opens_no_context_on_the_first_card() -> None:
    done = subprocess.run([sys.executable, "-c", PINS], capture_output=True, text=True, timeout=100)
    assert done.stdout == "False\n", done.stderr


PROGRAM = """
import threading, torch
from roost.train.checkpointing.staging import Staging
torch.cuda.set_device(1)
value, staging = torch.ones(1024, device="cuda:1"), Staging()
staging.begin(defer=[value])
staging.leaf(value)
staging.start_gpu_copies()
thread = threading.Thread(target=staging.wait)
thread.start()
thread.join()
print(torch._C._cuda_hasPrimaryContext(0))
"""


def test_the_thread_that_writes_opens_no_context_on_the_first_card() -> None:
    """Half a gigabyte of another rank's card."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100)
    assert done.stdout == "False\n", done.stderr
