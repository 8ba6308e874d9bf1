from __future__ import annotations

import pytest

from roost.base.interval import NEVER
from roost.train.progress import Progress
from tests.train.parts import bits


def test_counts_steps_batches_epochs_samples() -> None:
    progress = Progress()
    progress.advance(batches=3, samples=12, last=False)
    assert (progress.step, progress.epoch, progress.batch, progress.samples) == (1, 0, 3, 12)
    progress.advance(batches=1, samples=2, last=True)
    assert (progress.step, progress.epoch, progress.batch, progress.samples) == (2, 1, 0, 14)
    progress.advance(batches=3, samples=12, last=False)
    assert (progress.step, progress.epoch, progress.batch) == (3, 1, 3)


@pytest.mark.parametrize(
    ("step", "total_steps", "seconds", "total_seconds", "fraction"),
    [
        (0, 0, 0.0, float("inf"), 0.0),
        (1, 4, 0.0, float("inf"), 0.25),
        (9, 4, 0.0, float("inf"), 1.0),
        (1, 4, 3.0, 4.0, 0.75),
        (1, NEVER, 3.0, 4.0, 0.75),
    ],
)
def test_fraction_is_that_of_the_nearer_end(
    step: int, total_steps: int, seconds: float, total_seconds: float, fraction: float
) -> None:
    progress = Progress(step=step, seconds=seconds, total_steps=total_steps, total_seconds=total_seconds)
    assert progress.fraction == pytest.approx(fraction)


def test_round_trip_keeps_the_limits_of_the_new_run() -> None:
    first = Progress(step=5, epoch=1, batch=2, samples=33, seconds=1.5)
    second = Progress(total_steps=20)
    second.load_state_dict(first.state_dict())
    assert bits(second.state_dict()) == bits(first.state_dict())
    assert second.fraction == 0.25
