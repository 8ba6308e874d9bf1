"""The summary of a cell: its numbers against plain NumPy, its bytes, groups, worst cases, bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roost.base.errors import ConfigError
from roost.evaluation.summaries import bootstrap, summary
from roost.evaluation.summaries.summary import Case, SetValues, parse_cases
from roost.package.results.evaluations.evaluation_rows import Rows
from roost.package.results.evaluations.row_columns import column_of

DRAWS = np.random.default_rng(0)


def rows_of(**columns: Any) -> Rows:
    named = {name.replace("group_", "group/"): values for name, values in columns.items()}
    count = len(next(iter(named.values())))
    return Rows({name: column_of(values) for name, values in {"id": list(range(count)), **named}.items()})


def test_the_statistics_are_numpys() -> None:
    values = DRAWS.exponential(size=500)
    found = summary.summarize(rows_of(wer=values), identity="x")["metrics"]["wer"]
    assert found["mean"] == pytest.approx(values.mean(), rel=1e-14)
    assert found["std"] == pytest.approx(values.std(ddof=1), rel=1e-12)
    assert (found["min"], found["max"], found["count"]) == (values.min(), values.max(), 500)
    assert found["quantiles"]["0.5"] == np.median(values)
    edges, counts = found["histogram"]["edges"], found["histogram"]["counts"]
    assert counts == np.histogram(values, edges)[0].tolist() and sum(counts) == 500
    assert found["better"] == "min"


def test_what_is_not_finite_is_counted_apart() -> None:
    rows = rows_of(
        wer=[1.0, math.nan, math.inf, None, 3.0],
        all_nan=[math.nan] * 5,
        flags=[True, False, None] + [True] * 2,
    )
    found = summary.summarize(rows, identity="x")["metrics"]
    wer = found["wer"]
    assert (wer["mean"], wer["count"], wer["nan"], wer["infinite"], wer["missing"]) == (2.0, 2, 1, 1, 1)
    assert (found["all_nan"]["mean"], found["all_nan"]["nan"]) == (None, 5)
    assert (found["flags"]["mean"], found["flags"]["missing"]) == (0.75, 1)


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Of 300 samples of a skewed distribution about 95 % have an interval with its mean inside."""
    draws = np.random.default_rng(1)
    hits = 0
    for number in range(300):
        found = bootstrap.mean_interval(draws.exponential(size=80), seed=number)
        assert found is not None
        hits += found[0] <= 1.0 <= found[1]
    assert 0.90 <= hits / 300 <= 0.98


@pytest.mark.parametrize("count", [3000, 100_000])
def test_the_interval_of_many_values_is_the_plain_bootstraps(count: int) -> None:
    values = np.random.default_rng(2).exponential(size=count) ** 2
    found = bootstrap.mean_interval(values, seed=5)
    draws = np.random.default_rng(3)
    means = [values[draws.integers(0, count, count)].mean() for _ in range(400)]
    low, high = np.quantile(means, [0.025, 0.975])
    assert found is not None
    assert abs(found[0] - low) < 0.25 * (high - low) and abs(found[1] - high) < 0.25 * (high - low)


def test_the_bytes_follow_from_rows_and_identity(tmp_path: Path) -> None:
    values = DRAWS.random(3000)
    found = []
    for name, identity in (("a", "cell"), ("b", "cell"), ("c", "other")):
        (tmp_path / name).mkdir()
        summary.write(tmp_path / name, summary.summarize(rows_of(wer=values), identity=identity))
        found.append((tmp_path / name / "summary.json").read_bytes())
    assert found[0] == found[1] != found[2]


def test_groups_have_their_best_and_worst() -> None:
    rows = rows_of(
        wer=[0.1, 0.3, 0.9, math.nan, 0.95],
        group_speaker=["b", "a", "a", "c", None],
        group_age=["10", "9", "9", "10", "(none)"],
        group_odd=["nan", "9", "10", "9", "9"],
    )
    found = summary.summarize(rows, identity="x")["groups"]
    speaker = found["speaker"]
    assert [(one["label"], one["count"]) for one in speaker["rows"]] == [
        ("a", 2),
        ("b", 1),
        ("c", 1),
        ("(none)", 1),
    ]
    assert speaker["rows"][0]["metrics"]["wer"] == {"mean": 0.6, "count": 2}
    assert speaker["rows"][2]["metrics"]["wer"] == {"mean": None, "count": 0}
    assert (speaker["best"], speaker["worst"], speaker["unlabeled"]) == ({"wer": "b"}, {"wer": "a"}, 1)
    assert [one["label"] for one in found["age"]["rows"]] == ["9", "10", "(none)"]
    assert (found["age"]["unlabeled"], found["age"]["worst"]) == (1, {"wer": "9"})
    assert [one["label"] for one in found["odd"]["rows"]] == ["10", "9", "nan"]


def test_worst_and_best_cases_with_ties_in_the_order_of_the_set() -> None:
    rows = rows_of(wer=[0.5, math.nan, 0.9, 0.9, 0.1, 0.5], score=[1, 2, 3, 4, 5, 6])
    found = summary.summarize(rows, identity="x", cases=[Case("wer", "max", 3), Case("score", "min", 1)])
    assert [(one["id"], one["value"]) for one in found["worst"][0]["cases"]] == [(2, 0.9), (3, 0.9), (0, 0.5)]
    assert [one["id"] for one in found["best"][0]["cases"]] == [4, 0, 5]
    assert [one["id"] for one in found["worst"][1]["cases"]] == [0]
    assert found["metrics"]["score"]["better"] == "max"
    default = summary.summarize(rows, identity="x")
    assert [one["metric"] for one in default["worst"]] == ["wer"]  # it is not known which scores are better


def test_values_of_sets_and_batches() -> None:
    batches = [{"batch": 0, "samples": 4, "loss": 1.0}, {"batch": 1, "samples": 1, "loss": 6.0}]
    found = summary.summarize(
        rows_of(errors=[1, 2], words=[3, 4]),
        identity="x",
        set_values=SetValues({"wer": 3 / 7, "broken": math.nan}, hidden=["words"]),
        batch_values=batches,
    )["metrics"]
    assert list(found) == ["errors", "loss", "wer", "broken"]
    assert (found["loss"]["mean"], found["loss"]["from"]) == (2.0, "batches")
    assert (found["wer"]["mean"], found["wer"]["from"]) == (3 / 7, "set")
    assert (found["broken"]["mean"], found["broken"]["nan"]) == (None, 1)


def test_skipped_samples_are_named() -> None:
    rows = Rows(
        {
            "id": column_of(["a", "b"]),
            "wer": column_of([0.5, None]),
            "skipped/error": column_of([None, "boom"]),
        }
    )
    found = summary.summarize(rows, identity="x")
    assert (found["samples"], found["evaluated"], found["num_skipped"]) == (2, 1, 1)
    assert found["skipped"] == [{"id": "b", "error": "boom"}]
    assert found["metrics"]["wer"]["missing"] == 0


def test_extreme_values_make_a_valid_file(tmp_path: Path) -> None:
    for values in ([], [1e308, 1e308, -1e308], [5e-324, 0.0], [2**53 + 1, 2**53]):
        summary.write(tmp_path, summary.summarize(rows_of(wer=values), identity="x"))
        json.loads((tmp_path / "summary.json").read_text())


def test_a_group_of_many_labels_is_bounded() -> None:
    labels = [f"s{number}" for number in range(3000)]
    found = summary.summarize(rows_of(wer=np.arange(3000.0), group_s=labels), identity="x")["groups"]["s"]
    assert found["labels"] == 3000 and 1000 <= len(found["rows"]) <= 1002
    assert found["best"]["wer"] == "s0" and found["worst"]["wer"] == "s2999"
    assert {"s0", "s2999"} <= {one["label"] for one in found["rows"]}


def test_a_missing_metric_is_one_error_with_the_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        summary.summarize(rows_of(wer=[1.0], cer=[1.0]), identity="x", cases=[Case("wre", "max", 1)])
    assert "cer, wer" in str(caught.value) and caught.value.setting == "worst_cases"


@pytest.mark.parametrize(
    "given", ["wer", [("wer", "max")], [("wer", "most", 1)], [("wer", "max", 0)], [("wer", "max", True)]]
)
def test_malformed_cases_are_refused(given: object) -> None:
    with pytest.raises(ConfigError):
        parse_cases(given)
    assert parse_cases([["wer", "max", 3]]) == [Case("wer", "max", 3)]
    assert parse_cases([["wer", "max", 3]], setting="a.b")[0].setting == "a.b"
