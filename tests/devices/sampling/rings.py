"""Samples that a test has made up, and where processes find them."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest

from roost.devices import lease_files
from roost.devices.sampling import sample_ring
from roost.devices.sampling.sample_ring import MachineSample, RingHeader, RingWriter

TWO_CARDS = [{"id": f"GPU-{n}", "name": "H100", "total_mb": 81_920} for n in range(2)]


def boot_a_day_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of hours ago are possible, however short ago the machine of the tests was booted."""
    since_boot = sample_ring.boot_seconds
    monkeypatch.setattr(sample_ring, "boot_seconds", lambda: since_boot() + 86_400)


def shared_folder(tmp_path: Path) -> Path:
    """A folder of samples as the operations make it."""
    return lease_files.make_shared_folder(lease_files.make_shared_folder(tmp_path / "leases") / "samples")


def writer(folder: Path, cards: list[dict[str, object]] = TWO_CARDS) -> RingWriter:
    fd = os.open(folder, os.O_RDONLY)
    try:
        return RingWriter(fd, RingHeader(cards=cards, host={"name": "vm", "cores": 2}))
    finally:
        os.close(fd)


def sample(ring: RingWriter, at: float | None = None, state: int = 0, **values: float) -> MachineSample:
    """A sample of now, or of a moment in seconds since boot; ``host_cpu=30`` sets host/cpu."""
    boot = sample_ring.boot_seconds() if at is None else at
    wall = time.time() - (sample_ring.boot_seconds() - boot)
    given = {name.replace("__", "/").replace("GPU", "GPU-"): value for name, value in values.items()}
    return MachineSample(boot, wall, state, tuple(given.get(name, math.nan) for name in ring.columns))
