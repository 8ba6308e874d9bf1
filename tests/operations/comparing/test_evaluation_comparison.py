"""``compare --evaluation``: pairing by id, differences against plain NumPy, groups, cells, bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from roost.base.errors import NotFound, UsageError
from roost.cli.commands import compare as compare_command
from roost.operations.comparing.evaluation_comparison import compare_evaluations
from roost.operations.evaluating.named_evaluations import find_cells
from tests.evaluation.made_evaluation import make_cell, make_evaluation, write_cell_file, write_cells

CELL = "beam/best/test%clean"


def cell(folder: Path, rows: list[dict[str, Any]]) -> Path:
    make_cell(folder, rows)
    write_cell_file(folder, checkpoint=folder.name)
    return folder


def rows(values: dict[Any, float], labels: str = "") -> list[dict[str, Any]]:
    found = [{"id": id_, "wer": value, "text": f"{id_}!"} for id_, value in values.items()]
    return [
        {**row, "group/speaker": label} for row, label in zip(found, labels or "x" * len(found), strict=True)
    ]


@pytest.mark.parametrize("prefix", ["u", 0])
def test_samples_are_paired_by_id(tmp_path: Path, prefix: Any) -> None:
    ids = [prefix + (str(n) if prefix else n) for n in range(8)]
    draws = np.random.default_rng(0)
    a = dict(zip(ids[:7], draws.random(7), strict=True)) | {ids[2]: math.nan}
    b = dict(zip(ids[:0:-1], draws.random(7), strict=True)) | {ids[5]: a[ids[5]]}
    found = compare_evaluations(cell(tmp_path / "a", rows(a)), cell(tmp_path / "b", rows(b))).cells[0]
    both = [id_ for id_ in a if id_ in b and id_ != ids[2]]
    differences = np.array([a[id_] - b[id_] for id_ in both])
    (metric,) = found.metrics
    assert (found.paired, found.ids_only_a, found.ids_only_b) == (6, [ids[0]], [ids[7]])
    assert (metric.count, metric.not_compared, metric.better) == (5, 1, "min")
    assert metric.difference == pytest.approx(differences.mean())
    assert (metric.larger, metric.smaller, metric.equal) == (
        (differences > 0).sum(),
        (differences < 0).sum(),
        1,
    )
    assert (metric.wins, metric.losses) == (metric.smaller, metric.larger)
    order = sorted((id_ for id_ in both if a[id_] > b[id_]), key=lambda id_: b[id_] - a[id_])
    assert [one.id for one in metric.worse] == order
    assert metric.worse[0].texts_a == {"text": f"{order[0]}!"}


def test_the_paired_interval_is_narrower_than_two_means(tmp_path: Path) -> None:
    """A shift much smaller than the spread of the samples is found, because samples are paired."""
    draws = np.random.default_rng(1)
    base = draws.random(200)
    a = cell(tmp_path / "a", rows(dict(enumerate(base + 0.02 + 0.01 * draws.random(200)))))
    b = cell(tmp_path / "b", rows(dict(enumerate(base))))
    metric = compare_evaluations(a, b).cells[0].metrics[0]
    assert metric.verdict == "B better" and metric.interval is not None and metric.interval[0] > 0.02
    assert compare_evaluations(b, a).cells[0].metrics[0].verdict == "A better"


def test_groups_begin_with_the_worst(tmp_path: Path) -> None:
    a = cell(tmp_path / "a", rows({1: 0.5, 2: 0.1, 3: 0.9, 4: 0.2}, "mmff"))
    b = cell(tmp_path / "b", rows({1: 0.5, 2: 0.2, 3: 0.1, 4: 0.2}))
    group = compare_evaluations(a, b).cells[0].metrics[0].groups["speaker"]
    assert [(one.label, one.count) for one in group.rows] == [("f", 2), ("m", 2)]
    assert group.rows[0].difference == pytest.approx(0.4) and group.rows[1].difference == pytest.approx(-0.05)


def test_evaluations_are_compared_cell_by_cell(tmp_path: Path) -> None:
    one = make_evaluation(tmp_path / "a")
    other = make_evaluation(tmp_path / "b", form="jsonl", worse=0.1)
    cells = json.loads((other / "cells.json").read_text())["cells"]
    write_cells(other, [*cells[:2], {**cells[2], "variant": "wide"}])
    found = compare_evaluations(one, other, metrics=["wer"])
    assert [pair.a for pair in found.cells] == ["greedy / best / test/clean", "greedy / last / test/clean"]
    assert found.only_a == ["beam / best / test/clean", "beam / last / test/clean"]
    assert found.only_b == ["wide / best / test/clean"]
    assert [metric.verdict for pair in found.cells for metric in pair.metrics] == ["A better", "A better"]
    assert found.cells[0].metrics[0].difference == pytest.approx(-0.1)


def with_set_metric(folder: Path, value: float) -> Path:
    file = folder / "summary.json"
    found = json.loads(file.read_text())
    found["metrics"]["corpus_wer"] = {"from": "set", "better": "min", "count": 2, "mean": value, "nan": 0}
    file.write_text(json.dumps(found))
    return folder


def test_metrics_of_whole_sets_are_compared_without_an_interval(tmp_path: Path) -> None:
    a = with_set_metric(cell(tmp_path / "a", rows({1: 0.5, 2: 0.1})), 0.4)
    b = with_set_metric(cell(tmp_path / "b", rows({1: 0.5, 3: 0.2})), 0.1)
    (one,) = compare_evaluations(a, b).cells[0].set_metrics
    assert (one.name, one.better, one.difference) == ("corpus_wer", "min", pytest.approx(0.3))
    said = run(a, b).output
    assert "corpus_wer  0.4" in said and "+0.3" in said and "of all samples of each side: corpus_wer" in said
    said = run(a, b, "-m", "corpus_wer").output
    assert "corpus_wer" in said and "wer by speaker" not in said
    assert not compare_evaluations(a, cell(tmp_path / "c", rows({1: 0.5}))).cells[0].set_metrics


def test_groups_of_equal_samples_are_shown_on_request(tmp_path: Path) -> None:
    a, b = (cell(tmp_path / name, rows({1: 0.5, 2: 0.1})) for name in "ab")
    assert "no difference" in run(a, b).output and "by speaker" not in run(a, b).output
    assert "wer by speaker" in run(a, b, "--all").output


def test_what_cannot_be_compared_is_one_clear_error(tmp_path: Path) -> None:
    a, b = cell(tmp_path / "a", rows({1: 0.5})), cell(tmp_path / "b", rows({2: 0.5}))
    with pytest.raises(UsageError, match="no sample in common"):
        compare_evaluations(a, b)
    with pytest.raises(UsageError, match="same evaluation"):
        compare_evaluations(a, a)
    with pytest.raises(NotFound) as caught:
        compare_evaluations(a, cell(tmp_path / "c", rows({1: 0.5})), metrics=["wre"])
    assert caught.value.setting == "-m" and "wer" in str(caught.value)
    (tmp_path / "a" / "summary.json").unlink()
    with pytest.raises(NotFound, match="not finished"):
        find_cells(a)
    one, other = make_evaluation(tmp_path / "p"), make_evaluation(tmp_path / "q")
    grid = other / "cells.json"
    grid.write_text(grid.read_text().replace('"variant": "', '"variant": "x'))
    with pytest.raises(UsageError, match="no cell of A has a counterpart"):
        compare_evaluations(one, other)


def run(*words: object) -> Any:
    return CliRunner().invoke(
        compare_command.command, ["--evaluation", *map(str, words)], standalone_mode=False
    )


def test_the_command_prints_text_markdown_and_json(tmp_path: Path) -> None:
    one, other = make_evaluation(tmp_path / "a"), make_evaluation(tmp_path / "b", worse=0.1)
    text = run(one, other).output
    assert "A better" in text and "cer: where A is worse" not in text and "by speaker" in text
    assert "<b>hypothesis</b>" in run(other / CELL, one / CELL, "-m", "wer", "--all").output.replace("\\", "")
    body = json.loads(run(one, other, "--json").output)
    assert body["cells"][0]["metrics"][1]["name"] == "wer" and len(body["cells"]) == 4
    markdown = run(one, other, "--markdown", "-m", "wer").output
    assert "| wer |" in markdown and "### greedy / best / test/clean" in markdown


@pytest.mark.parametrize("words", [["a"], ["a", "b", "c"], ["a", "b", "--diff"], ["a", "b", "--at", "3"]])
def test_wrong_command_lines(words: list[str]) -> None:
    assert isinstance(run(*words).exception, UsageError)
