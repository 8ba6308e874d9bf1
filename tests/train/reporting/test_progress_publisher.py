"""Telling the world where a run is."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.interval import NEVER
from roost.package import live_progress
from roost.package.live_progress import ProgressFile
from roost.train.progress import Progress
from roost.train.reporting.progress_publisher import ProgressPublisher, ThroughputMeter


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


def test_the_first_look_only_begins() -> None:
    rate = ThroughputMeter()
    rate.update(5000, 100.0)  # a resumed run has samples already
    assert rate.per_second == 0.0
    rate.update(5001, 100.01)
    assert rate.per_second == 0.0, "too short to say"
    rate.update(5010, 100.1)
    assert rate.per_second == pytest.approx(100.0)


def test_follows_a_change_within_seconds() -> None:
    rate = ThroughputMeter()
    for number in range(101):
        rate.update(number * 10, number * 0.1)
    assert rate.per_second == pytest.approx(100.0)
    for number in range(1, 101):
        rate.update(1000 + number * 20, 10.0 + number * 0.1)
    assert rate.per_second == pytest.approx(200.0, rel=0.01)
