from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.train.checkpoints import Checkpoints
from roost.train.hooks import EarlyStop, Save, Validate
from roost.train.trainer import Trainer
from tests.train.hooks.test_best import NAN, Scripted
from tests.train.parts import Steps, Still, bits, built, loader, plain


def trainer(folder: Path, values: list[float], steps: Steps | None = None, **options: Any) -> Trainer:
    runner = built(Scripted)
    runner.values = values
    return plain(
        runner,
        Still(),
        [Validate("1"), EarlyStop("valid/score", **options), Save("100"), *([steps] if steps else [])],
        until=len(values),
        loaders={"valid": loader(Still(8), 8, shuffle=False)},
        checkpoints=Checkpoints(folder),
    )


@pytest.mark.parametrize(
    ("values", "options", "last"),
    [
        ([3.0, 2.0, 2.5, 2.5, 1.0], {"patience": 2}, 4),
        ([3.0, 2.0, 2.5, 1.0, 2.5, 2.5, 2.5], {"patience": 3}, 7),
        ([1.0, 2.0, 1.5, 1.5, 3.0], {"patience": 2, "mode": "max"}, 4),
        ([3.0, 2.9, 2.8, 0.0], {"patience": 2, "min_delta": 0.5}, 3),
        ([2.0, NAN, NAN, 1.0], {"patience": 2}, 3),
        ([NAN, NAN, 1.0], {"patience": 2}, 2),
        ([3.0, 2.0, 1.0], {"patience": 1}, 3),
    ],
)
def test_stops_after_so_many_validations(
    values: list[float], options: dict[str, Any], last: int, tmp_path: Path
) -> None:
    found = trainer(tmp_path, values, **options)
    assert found.fit() == "finished"
    assert found.progress.step == last


def test_a_stopped_run_stays_finished_unless_patience_is_raised(tmp_path: Path) -> None:
    values = [1.0, 2.0, 2.0, 2.0, 0.5, 2.0]
    assert trainer(tmp_path, values, patience=2).fit() == "finished"
    steps = Steps()
    again = trainer(tmp_path, values, steps, patience=2)
    assert again.fit() == "finished"
    assert (again.progress.step, steps.steps) == (3, [])
    more = trainer(tmp_path, values, patience=4)
    assert more.fit() == "finished"
    assert more.progress.step == 6


def test_another_metric_begins_anew() -> None:
    first = EarlyStop("valid/loss", patience=2)
    first.best, first.waited = 0.5, 2
    same, other = EarlyStop("valid/loss"), EarlyStop("valid/accuracy", mode="max")
    for hook in (same, other):
        hook.load_state_dict(first.state_dict())
    assert bits(same.state_dict()) == bits(first.state_dict())
    assert (other.best, other.waited) == (-float("inf"), 0)


def test_a_monitor_that_is_never_reported(tmp_path: Path) -> None:
    found = trainer(tmp_path, [1.0])
    found.calls.eval[-1].monitor = "valid/f1"  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigError, match=r"early_stopping\.monitor: 'valid/f1' is never reported.*valid/score"
    ):
        found.fit()
