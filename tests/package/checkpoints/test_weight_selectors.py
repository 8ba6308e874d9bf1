"""Which weights a grid of evaluations compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import UsageError
from roost.package.checkpoints import checkpoint, selection
from roost.package.checkpoints.weight_selectors import WeightSelector, parse_selectors
from roost.package.package import PackageFolder
from tests.messages import Messages
from tests.operations.packages import VALUES, package

AVERAGES = {**VALUES, "averages": {"ema": {"decay": 0.9}, "average": {}}}


@pytest.fixture
def made(tmp_path: Path) -> PackageFolder:
    """Checkpoints 0, 1, 2 with valid/loss 1.5, 0.5, 0.75."""
    return package(tmp_path / "runs", values=AVERAGES)


def ids(made: PackageFolder, one: WeightSelector) -> list[int]:
    assert one.checkpoints is not None
    return list(
        selection.load_each(made, one.checkpoints, lambda path: checkpoint.read_manifest(path).id, [])
    )


def test_each_selector_in_order(made: PackageFolder) -> None:
    found = parse_selectors(made, "best, last,1,average(best:2),average(last:2),ema,ema(best),average")
    assert [(one.name, one.folder, ids(made, one), one.average) for one in found] == [
        ("best", "best", [1], None),
        ("last", "last", [2], None),
        ("1", "1", [1], None),
        ("average(best:2)", "average-best-2", [1, 2], None),
        ("average(last:2)", "average-last-2", [2, 1], None),
        ("ema", "ema", [2], "ema"),
        ("ema(best)", "ema-best", [1], "ema"),
        ("average", "average", [2], "average"),
    ]


def test_the_default_is_the_best_where_a_rule_determines_it(made: PackageFolder, tmp_path: Path) -> None:
    assert [one.name for one in parse_selectors(made)] == ["best"]
    without = package(tmp_path / "other", values={**VALUES, "checkpoint": {"best": []}})
    assert [one.name for one in parse_selectors(without)] == ["last"]
    (one,) = parse_selectors(without, monitor="valid/loss", mode="max")
    assert ids(without, one) == [0]


def test_another_metric_counts_for_the_best_only(made: PackageFolder) -> None:
    found = parse_selectors(made, "average(best:2),last", monitor="valid/loss", mode="max")
    assert [ids(made, one) for one in found] == [[0, 2], [2]]


def test_a_file_comes_first_and_alone_without_selectors(made: PackageFolder, tmp_path: Path) -> None:
    file = tmp_path / "öld best.mdl"
    (one,) = parse_selectors(made, weights=file)
    assert (one.name, one.folder, one.file, one.checkpoints) == (file.name, "ld-best", str(file), None)
    assert [one.folder for one in parse_selectors(made, "last", weights=file)] == ["ld-best", "last"]


@pytest.mark.parametrize(
    "words",
    [
        "bset",
        "best,,last",
        "",
        "best,best",
        "average(best)",
        "average(best:0)",
        "average(worst:3)",
        "average(best:2",
        "emma",
        "ema(best:2)",
        "best(3)",
        "-1",
    ],
)
def test_one_clear_error(words: str, made: PackageFolder, messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        parse_selectors(made, words)
    messages.check(refused.value)


def test_a_file_that_is_named_as_a_selector(made: PackageFolder, tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        parse_selectors(made, "best", weights=tmp_path / "best.pth")
    messages.check(refused.value)
