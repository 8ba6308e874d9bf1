from __future__ import annotations

from typing import Any

import pytest

from roost.config.settings import Settings, parse_settings
from roost.operations.lifecycle.run_estimate import estimate_run
from tests.operations.packages import VALUES

MEASURED = {
    "steps_per_epoch": 100,
    "total_steps": 1000,
    "step_seconds": 0.1,
    "validate_seconds": 2.0,
    "save_seconds": 1.0,
    "test_seconds": 5.0,
    "checkpoint_bytes": 10,
}


def settings(**changed: Any) -> Settings:
    values = {**VALUES, "max_epochs": 10, "validate_every": "1ep", **changed}
    return parse_settings({name: value for name, value in values.items() if value is not None})


def test_the_time_of_a_run() -> None:
    found = estimate_run(settings(), MEASURED, free_bytes=10**6)
    assert found.seconds_per_epoch == pytest.approx(100 * 0.1 + 2 + 1)
    assert found.total_seconds == pytest.approx(10 * 13 + 5)
    assert (found.steps_per_epoch, found.total_steps, found.seconds_per_step) == (100, 1000, 0.1)


@pytest.mark.parametrize(
    ("every", "times"),
    [("50", 2), ("2ep", 0.5), ("4/ep", 4), ("1000/ep", 100), ("5s", 2), (["1ep", "50"], 3)],
)
def test_how_often_something_comes(every: Any, times: float) -> None:
    found = estimate_run(settings(checkpoint={"every": every, "best": []}), MEASURED, free_bytes=0)
    assert found.seconds_per_epoch == pytest.approx(12 + times)


@pytest.mark.parametrize(("best", "saves"), [([], 1), ([{"monitor": "valid/loss", "mode": "min"}], 4)])
def test_a_run_validates_and_saves_in_its_last_step(best: Any, saves: int) -> None:
    """However short it is; and each validation may find a new best."""
    short = settings(checkpoint={"every": "1ep", "best": best}, validate_every="4/ep")
    found = estimate_run(short, {**MEASURED, "total_steps": 90}, free_bytes=0)
    assert found.total_seconds == pytest.approx(90 * 0.1 + 4 * 2 + saves * 1 + 5)


def test_a_run_that_time_ends() -> None:
    found = estimate_run(
        settings(max_epochs=None, max_time="1h"), {**MEASURED, "total_steps": None}, free_bytes=0
    )
    assert found.total_steps is None and found.total_seconds == pytest.approx(3605)
    shorter = estimate_run(settings(max_time="60s"), MEASURED, free_bytes=0)
    assert shorter.total_seconds == pytest.approx(65)


@pytest.mark.parametrize(
    ("checkpoint", "most"),
    [
        ({"fast": 3, "held": 1}, 5),
        ({"fast": 0, "held": 0}, 3),
        ({"fast": 2, "slow": 4, "held": 2, "best": [{"monitor": "a", "mode": "min", "top_k": 3}]}, 12),
        ({"fast": 1000}, 21),
    ],
)
def test_checkpoints_that_stand_at_one_time(checkpoint: dict[str, Any], most: int) -> None:
    """At most as many as the run can make: a save and a new best an epoch, and one at the end."""
    found = estimate_run(settings(checkpoint=checkpoint), MEASURED, free_bytes=10 * most)
    assert (found.checkpoints, found.disk_bytes, found.fits) == (most, 10 * most, True)
    assert not estimate_run(settings(checkpoint=checkpoint), MEASURED, free_bytes=10 * most - 1).fits


def test_a_mode_that_saves_nothing() -> None:
    measured = {
        name: value for name, value in MEASURED.items() if name not in ("save_seconds", "checkpoint_bytes")
    }
    found = estimate_run(settings(), measured, free_bytes=0)
    assert (found.checkpoints, found.disk_bytes, found.fits) == (0, 0, True)
