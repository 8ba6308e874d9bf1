"""Metrics of a whole set from its rows: torchmetrics, functions, `Runner.summarize`, and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roost.base.errors import ConfigError, ContractError
from roost.evaluation.summaries import set_metrics
from roost.evaluation.summaries.set_metrics import compute_set_values
from roost.package.results.evaluations import evaluation_rows
from roost.project.contract import Runner
from tests.evaluation.made_evaluation import write_cell_file

COUNT = 1000
DRAWS = np.random.default_rng(0)
LABELS, SCORES = DRAWS.integers(0, 3, COUNT), DRAWS.random((COUNT, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cell")
    write_cell_file(folder)
    for number, first in enumerate(range(0, COUNT, 300)):
        here = slice(first, min(first + 300, COUNT))
        columns: dict[str, Any] = {
            "id": np.arange(COUNT)[here], "label": LABELS[here], "scores": SCORES[here],
            "text": [f"word{n % 5}" for n in range(COUNT)[here]], "errors": LABELS[here] % 2,
        }  # fmt: skip
        evaluation_rows.write_part(folder, [number], columns, session=1, rank=number % 2)
    evaluation_rows.merge(folder, range(COUNT))
    return folder


class Own(Runner):
    """A Runner without a model."""


def words(text: list[str]) -> dict[str, float]:
    return {"distinct": len(set(text)), "all": len(text)}


def test_metrics_are_those_of_all_samples(cell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torchmetrics  # two seconds, in each process that collects the tests

    monkeypatch.setattr(set_metrics, "_CHUNK_ROWS", 128)
    runner = Own()
    runner.test_metrics = {
        "auroc": (torchmetrics.AUROC(task="multiclass", num_classes=3), ["scores", "label"]),
        "recall": (
            torchmetrics.Recall(task="multiclass", num_classes=3, average="none"),
            ("scores", "label"),
        ),
        "words": words,
    }
    found = compute_set_values(cell, runner, "test", seed=0).values
    plain = torchmetrics.functional.auroc(
        torch.from_numpy(SCORES), torch.from_numpy(LABELS), task="multiclass", num_classes=3
    )
    assert found["auroc"] == float(plain)
    assert {"recall_0", "recall_1", "recall_2"} < found.keys()
    assert (found["words_distinct"], found["words_all"]) == (5, COUNT)


def test_summarize_hides_what_only_helps(cell: Path) -> None:
    class Summing(Own):
        def summarize(self, values: Any, split: str) -> dict[str, float | None]:
            assert values["scores"].shape == (COUNT, 3) and split == "test/x"
            return {"rate": float(values["errors"].sum() / len(values["text"])), "errors": None}

    found = compute_set_values(cell, Summing(), "test/x", seed=0)
    assert found.values == {"rate": pytest.approx((LABELS % 2).mean())} and found.hidden == {"errors"}


def test_skipped_and_missing_values(tmp_path: Path) -> None:
    write_cell_file(tmp_path, form="jsonl")
    rows = [{"id": 0, "n": 3}, {"id": 1, "skipped/error": "boom"}, {"id": 2, "n": None}, {"id": 3, "n": 4}]
    evaluation_rows.write_part(tmp_path, [0], rows, session=1, rank=0)
    evaluation_rows.merge(tmp_path, range(4))
    runner = Own()
    seen = {}

    def total(n: torch.Tensor) -> float:
        seen["n"] = n.tolist()
        return float(n.nansum())

    runner.test_metrics = {"total": total}
    assert compute_set_values(tmp_path, runner, "test", seed=0).values == {"total": 7.0}
    assert seen["n"][0] == 3.0 and seen["n"][1] != seen["n"][1] and len(seen["n"]) == 3


def test_without_metrics_no_row_is_read(cell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation_rows, "read_rows", None)
    assert compute_set_values(cell, Own(), "test", seed=0).values == {}


@pytest.mark.parametrize(
    ("metrics", "kind"),
    [
        ([1], ConfigError),
        ({"a": 3}, ConfigError),
        ({"a": lambda *columns: 0}, ConfigError),
        ({"a": lambda lable: 0}, ConfigError),
        ({"a": lambda label: "much"}, ContractError),
    ],
)
def test_malformed_metrics_are_one_clear_error(cell: Path, metrics: Any, kind: type[Exception]) -> None:
    refuse(cell, metrics, kind)


def test_a_metric_that_is_not_made_is_one_clear_error(cell: Path) -> None:
    import torchmetrics

    refuse(cell, {"a": torchmetrics.Accuracy}, ConfigError)


def refuse(cell: Path, metrics: Any, kind: type[Exception]) -> None:
    runner = Own()
    runner.test_metrics = metrics
    with pytest.raises(kind) as caught:
        compute_set_values(cell, runner, "test", seed=0)
    assert "test_metrics" in str(caught.value)


def test_an_error_of_a_metric_names_it(cell: Path) -> None:
    def broken(label: torch.Tensor) -> float:
        raise ZeroDivisionError("no label")

    runner = Own()
    runner.test_metrics = {"broken": broken}
    with pytest.raises(ZeroDivisionError) as caught:
        compute_set_values(cell, runner, "test", seed=0)
    assert "test_metrics['broken'], with label int64 [1000]" in caught.value.__notes__[0]
