from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import ConfigError
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.hooks import EarlyStop, Save, Validate
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.hooks.test_best_checkpoint import NAN, Scripted
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
        # A metric that is always negative, where large values are good (a log-likelihood).
        ([-9.0, -7.0, -5.0, -4.0], {"patience": 2, "mode": "max"}, 4),
        ([-9.0, -7.0, -8.0, -7.5, -1.0], {"patience": 2, "mode": "max"}, 4),
        # A relative change of negative values: a worse one never passes.
        (
            [-10.0, -10.5, -9.5, -1.0],
            {"patience": 2, "mode": "max", "min_delta": 0.1, "min_delta_mode": "relative"},
            3,
        ),
        (
            [-10.0, -8.9, -9.5, -8.5, -1.0],
            {"patience": 2, "mode": "max", "min_delta": 0.1, "min_delta_mode": "relative"},
            4,
        ),
        (
            [-10.0, -10.5, -11.5, -12.0, -12.5],
            {"patience": 2, "min_delta": 0.1, "min_delta_mode": "relative"},
            5,
        ),
        ([0.0, -0.1, 0.0, 0.0], {"patience": 2, "min_delta": 0.5, "min_delta_mode": "relative"}, 4),
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
    assert again.ended_early
    assert more.fit() == "finished"
    assert more.progress.step == 6 and not more.ended_early, "it came to its end"


def test_another_metric_begins_anew() -> None:
    first = EarlyStop("valid/loss", patience=2)
    first.best, first.waited = 0.5, 2
    same, other = EarlyStop("valid/loss"), EarlyStop("valid/accuracy", mode="max")
    for hook in (same, other):
        hook.load_state_dict(first.state_dict())
    assert bits(same.state_dict()) == bits(first.state_dict())
    assert (other.best, other.waited) == (-float("inf"), 0)


def test_a_monitor_that_is_never_reported(tmp_path: Path, messages: Messages) -> None:
    found = trainer(tmp_path, [1.0])
    found.calls.eval[-1].monitor = "valid/f1"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError) as refused:
        found.fit()
    assert refused.value.setting == "early_stopping.monitor"
    assert all(fact in str(refused.value) for fact in ("'valid/f1'", "valid/score"))
    messages.check(refused.value)


def test_patience_counts_validations_not_epochs(tmp_path: Path) -> None:
    """Validated every second step, patience 2: two validations in a row without improvement, four steps."""
    values = [3.0, 2.0, 9.0, 2.5, 9.0, 2.5, 9.0, 9.0]
    runner = built(Scripted)
    runner.values = values
    evals = Steps()
    found = plain(
        runner,
        Still(),
        [Validate("2"), EarlyStop("valid/score", patience=2), evals],
        until=len(values),
        loaders={"valid": loader(Still(8), 8, shuffle=False)},
    )
    assert found.fit() == "finished"
    assert (found.progress.step, evals.evals) == (6, [2, 4, 6])


def test_the_last_step_of_a_run_that_stops_is_validated_once_and_saved(tmp_path: Path) -> None:
    found = trainer(tmp_path, [1.0, 2.0, 2.0, 0.5], steps := Steps(), patience=2)
    assert found.fit() == "finished"
    assert steps.evals == [1, 2, 3]
    assert found.checkpoints is not None and found.checkpoints.newest is not None
    assert found.checkpoints.newest.step == 3


def test_patience_that_was_raised_lets_it_go_on_for_the_rest(tmp_path: Path) -> None:
    """Two validations were waited for already: of four, two are left."""
    values = [1.0, 2.0, 2.0, 2.0, 2.0, 0.5]
    assert trainer(tmp_path, values, patience=2).fit() == "finished"
    more = trainer(tmp_path, values, patience=4)
    assert more.fit() == "finished"
    assert more.progress.step == 5


def test_a_run_that_reached_its_last_step_stays_finished(tmp_path: Path) -> None:
    assert trainer(tmp_path, [3.0, 2.0, 1.0], patience=2).fit() == "finished"
    again = trainer(tmp_path, [3.0, 2.0, 1.0], steps := Steps(), patience=9)
    assert again.fit() == "finished"
    assert (again.progress.step, steps.steps) == (3, [])


def test_what_a_row_has_decides_too() -> None:
    hook = EarlyStop("lr", mode="max", patience=2)
    found = plain(
        built(Scripted), Still(), [Validate("1"), hook], until=6, loaders={"valid": loader(Still(8), 8)}
    )
    found.runner.values = [1.0] * 6
    assert found.fit() == "finished"
    assert (found.progress.step, hook.best) == (3, 0.1)


# ---- against a plainly written reference ---------------------------------------------------------------


def stops_at(
    values: list[float], *, mode: str, patience: int, min_delta: float, min_delta_mode: str
) -> int | None:
    """The validation, from 1, at which a run ends by patience."""
    best: float | None = None
    last_improvement = 0
    for number, value in enumerate(values, 1):
        if math.isnan(value):
            is_better = False
        elif best is None:
            is_better = value != (math.inf if mode == "min" else -math.inf)
        elif math.isinf(best):
            is_better = False  # nothing is better than the best that there can be
        else:
            margin = min_delta if min_delta_mode == "absolute" else min_delta * abs(best)
            is_better = value < best - margin if mode == "min" else value > best + margin
        if is_better:
            best, last_improvement = value, number
        if number - last_improvement >= patience:
            return number
    return None


class Ended:
    """What the hook asks of a trainer."""

    finished = False

    def request_stop(self, reason: str, *, finished: bool = False) -> None:
        self.finished = finished


numbers = st.one_of(
    st.floats(-100, 100), st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan])
)


@given(
    values=st.lists(numbers, min_size=1, max_size=12),
    mode=st.sampled_from(["min", "max"]),
    patience=st.integers(1, 4),
    min_delta=st.sampled_from([0.0, 0.01, 0.5, 2.0]),
    min_delta_mode=st.sampled_from(["absolute", "relative"]),
    cut=st.integers(0, 12),
)
def test_stops_where_the_reference_does_however_it_is_cut(
    values: list[float], cut: int, **options: Any
) -> None:
    hook, ended, found = EarlyStop("valid/score", **options), Ended(), None
    for number, value in enumerate(values, 1):
        if number == cut:
            state = hook.state_dict()
            hook = EarlyStop("valid/score", **options)
            hook.load_state_dict(state)
        hook.on_eval(ended, {"valid/score": value})  # type: ignore[arg-type]
        if ended.finished:
            found = number
            break
    assert found == stops_at(values, **options)
