"""Telling the world where a run is."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.interval import NEVER
from roost.package import live_progress
from roost.package.live_progress import ProgressFile
from roost.train.progress import Progress
from roost.train.reporting.progress_publisher import ProgressPublisher


@pytest.mark.parametrize(("total_steps", "published"), [(30, 30), (NEVER, 0), (0, 0)])
def test_what_is_published(tmp_path: Path, total_steps: int, published: int) -> None:
    publisher = ProgressPublisher(ProgressFile(tmp_path / "progress"), steps_per_epoch=10)
    run = Progress(step=12, epoch=1, batch=2, samples=48, total_steps=total_steps, total_seconds=60.0)
    publisher.publish(run, "validating")
    seen = live_progress.read(tmp_path / "progress")
    assert seen is not None and seen.total_steps == published
    assert (seen.step, seen.epoch, seen.batch, seen.samples) == (12, 1, 2, 48)
    assert (seen.steps_per_epoch, seen.phase) == (10, "validating")


def test_without_a_board() -> None:
    publisher = ProgressPublisher(None, steps_per_epoch=10)
    assert (publisher.phase, publisher.count) == ("starting", 0)
    publisher.publish(Progress(), "training")
    publisher.publish(Progress(), "saving")
    assert (publisher.phase, publisher.count) == ("saving", 2)
