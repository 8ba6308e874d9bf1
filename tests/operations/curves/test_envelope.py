"""Curves for a picture: every extreme of the data is in it."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import NotFound, UsageError
from roost.operations.cache_folder import cache_folder
from roost.operations.curves import history_cache
from roost.operations.curves.envelope import CurveEnvelope, build_envelope, build_envelopes
from roost.package import records
from tests.messages import Messages
from tests.operations.curves.test_history_cache import grow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(history_cache, "_REWRITE_BYTES", 0)
    (tmp_path / "records").mkdir()
    draw = random.Random(3)
    grow(draw, tmp_path / "records", 2, grow(draw, tmp_path / "records", 1, 0, 300), 200)
    return tmp_path / "records"


def check(
    found: CurveEnvelope, steps: list[int], values: list[float], low: int, high: int, width: int
) -> None:
    """Against the definition, point by point."""
    cells: dict[int, list[tuple[int, float]]] = {}
    points = [pair for pair in zip(steps, values, strict=True) if low <= pair[0] <= high]
    for step, value in points:
        cells.setdefault((step - low) * width // (high - low + 1), []).append((step, value))
    finite = {at: [one for one in cell if math.isfinite(one[1])] for at, cell in cells.items()}
    full = {at: cell for at, cell in sorted(finite.items()) if cell}
    assert found.points == len(points) and found.columns == list(full)
    assert found.counts == [len(cell) for cell in full.values()]
    assert list(zip(found.first_steps, found.first, strict=True)) == [cell[0] for cell in full.values()]
    assert list(zip(found.last_steps, found.last, strict=True)) == [cell[-1] for cell in full.values()]
    least = [min(cell, key=lambda one: one[1]) for cell in full.values()]
    most = [max(cell, key=lambda one: one[1]) for cell in full.values()]
    assert list(zip(found.min_steps, found.min, strict=True)) == least
    assert list(zip(found.max_steps, found.max, strict=True)) == most
    gaps = {}
    for at, cell in cells.items():
        for step, value in cell:
            if not math.isfinite(value):
                first, count = gaps.get((at, repr(value)), (step, 0))
                gaps[at, repr(value)] = (first, count + 1)
    assert [(gap.column, gap.kind, gap.first_step, gap.points) for gap in found.gaps] == [
        (*key, *found) for key, found in sorted(gaps.items())
    ]


@given(
    st.lists(st.integers(-50, 2**62), max_size=60, unique=True).map(sorted),
    st.integers(1, 30),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_every_extreme_is_in_it(steps: list[int], width: int, draw: random.Random, near: bool) -> None:
    if near:
        steps = list(range(-5, len(steps) - 5))
    values = [draw.choice([draw.uniform(-1, 1), 0.0, math.nan, math.inf, -math.inf]) for _ in steps]
    low, high = sorted((draw.choice([-60, 0, *steps]), draw.choice([3, 2**62, *steps])))
    found = build_envelope("a", np.array(steps, np.int64), np.array(values, float), low, high, width)
    check(found, steps, values, low, high, width)


@pytest.mark.parametrize("width", [1, 7, 100, 5000])
def test_of_the_folded_records(folder: Path, width: int) -> None:
    series = records.fold(folder).series
    shown = build_envelopes(folder, list(series), width=width)
    assert shown.from_step is not None and shown.to_step is not None
    for one in shown.curves:
        check(one, *series[one.name], shown.from_step, shown.to_step, width)
    part = build_envelopes(folder, ["train/loss"], from_step=40, to_step=90, width=width)
    check(part.curves[0], *series["train/loss"], 40, 90, width)


def test_names_alone_and_beyond_the_data(folder: Path) -> None:
    found = build_envelopes(folder)
    assert found.curves == [] and found.from_step is None and "perf/step_ms" in found.names
    for far in (
        build_envelopes(folder, ["train/loss"], from_step=10**9),
        build_envelopes(folder, ["train/loss"], to_step=-5),
    ):
        assert far.curves[0].points == 0 and far.curves[0].columns == []


def test_mistakes(folder: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        build_envelopes(folder, ["train/los"])
    assert refused.value.setting == "name"
    assert all(fact in str(refused.value) for fact in ("'train/los'", "'train/loss'"))
    messages.check(refused.value)
    with pytest.raises(NotFound) as refused:
        build_envelopes(folder / "none", ["train/los"])
    assert refused.value.setting == "name"
    messages.check(refused.value)
    with pytest.raises(UsageError) as refused:
        build_envelopes(folder, from_step=4, to_step=3)
    assert refused.value.setting == "to_step"
    messages.check(refused.value)


def test_a_damaged_cache_is_made_anew(folder: Path) -> None:
    first = build_envelopes(folder, ["train/loss"])
    for cache in (cache_folder() / "records").iterdir():
        cache.write_bytes(cache.read_bytes()[:-8] + b"\xff" * 8)
    for name in first.names:
        build_envelopes(folder, [name])
    assert build_envelopes(folder, ["train/loss"]) == first
