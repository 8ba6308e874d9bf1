"""Which limits a checkpoint has reached, and what trains on from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.operations.lifecycle import run_limits
from tests.operations.packages import package, publish


@pytest.mark.parametrize(
    ("values", "reached", "raised"),
    [
        ({"max_epochs": 3}, {"max_epochs": 3}, "max_epochs=6"),
        ({"max_epochs": 2, "max_steps": 25}, {"max_epochs": 3, "max_steps": 30}, "max_epochs=6 max_steps=60"),
        ({"max_epochs": 4, "max_steps": 30}, {"max_steps": 30}, "max_steps=60"),
        ({"max_time": "1s"}, {"max_time": 1.0}, "max_time=..."),
        ({"max_time": "2s"}, {}, "max_epochs=..."),
        ({"max_epochs": 9, "early_stopping": {"patience": 5}}, {}, "early_stopping.patience=10"),
        ({"max_epochs": "${goal}", "max_time": "soon"}, {}, "max_epochs=..."),
        ({"max_steps": 40}, {}, "max_steps=80"),
    ],
)
def test_the_newest_checkpoint(
    tmp_path: Path, values: dict[str, Any], reached: dict[str, Any], raised: str
) -> None:
    made = package(tmp_path / "runs")
    newest = run_limits.newest_checkpoint(made)
    assert newest is not None and newest.step == 30
    assert run_limits.reached(made, newest, values) == reached
    assert run_limits.raised(made, newest, values) == raised


def test_the_time_of_an_earlier_checkpoint_is_unknown(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    publish(made, step=40, total_steps=40)
    newest = run_limits.newest_checkpoint(made)
    assert newest is not None
    assert run_limits.reached(made, newest, {"max_time": "1s", "max_epochs": 3}) == {"max_epochs": 3}


def test_a_run_without_a_checkpoint(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="new")
    assert run_limits.newest_checkpoint(made) is None
    assert run_limits.raised(made, None, {"max_epochs": 3}) == "max_epochs=6"
