"""What is written of what `Runner.predict` gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roost.base.errors import ContractError
from roost.worker.results.prediction_writer import MAX_LINE_NUMBERS, PredictionWriter
from tests.messages import Messages


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]


def test_a_few_numbers_stand_in_the_line_and_more_in_a_file(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(0)
    wide, few = (
        torch.randn(5, 3, MAX_LINE_NUMBERS, generator=random),
        torch.randn(5, MAX_LINE_NUMBERS, generator=random),
    )
    names, short = ["a", "b", "ü", "d", "e"], torch.arange(5).to(torch.bfloat16)
    with PredictionWriter(tmp_path) as written:
        for span in (range(3), range(3, 5)):
            at = list(span)
            output = {"few": few[at], "name": [names[i] for i in at], "a/b": wide[at], "label": short[at]}
            written.add(output, len(at), first=at[0])
        values = written.values()
    found = lines(tmp_path)
    assert [list(line) for line in found] == [["index", "few", "name", "label"]] * 5
    assert [line["index"] for line in found] == list(range(5)) and [one["name"] for one in found] == names
    assert torch.equal(torch.tensor([line["few"] for line in found]), few), "every bit"
    assert found[4]["label"] == 4.0
    assert np.array_equal(np.load(tmp_path / "a_b.npy"), wide.numpy())
    assert values["a/b"] == {"file": "a_b.npy", "shape": [5, 3, MAX_LINE_NUMBERS], "dtype": "float32"}
    assert values["few"] == {} and written.count == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a_b.npy", "predictions.jsonl"]


def test_what_json_lacks_is_null_and_named(tmp_path: Path) -> None:
    with PredictionWriter(tmp_path) as written:
        written.add({"x": np.array([np.nan, 1.0]), "y": [[1.0, float("-inf")], {"z": [2]}]}, 2, first=7)
    assert lines(tmp_path) == [
        {"index": 7, "x": None, "y": [1.0, None], "nonfinite": {"x": "nan", "y.1": "-inf"}},
        {"index": 8, "x": 1.0, "y": {"z": [2]}},
    ]


def test_the_first_of_a_batch_alone(tmp_path: Path) -> None:
    with PredictionWriter(tmp_path) as written:
        written.add({"x": torch.arange(4), "w": torch.ones(4, 20)}, 4, first=0, most=3)
        assert written.count == 3
    assert [line["x"] for line in lines(tmp_path)] == [0, 1, 2]
    assert np.load(tmp_path / "w.npy").shape == (3, 20)


def test_names_of_files_do_not_meet(tmp_path: Path) -> None:
    given = {name: torch.full((1, 9), at) for at, name in enumerate(["a/b", "a_b", "A.b", "..", "a.B"])}
    with PredictionWriter(tmp_path) as written:
        written.add(given, 1, first=0)
        files = [one["file"] for one in written.values().values()]
    assert files == ["a_b.npy", "a_b-2.npy", "A.b.npy", "value.npy", "a.B-2.npy"]
    assert [int(np.load(tmp_path / file)[0, 0]) for file in files] == list(range(5))


BATCH = {"x": torch.zeros(2), "w": torch.zeros(2, 10)}


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (torch.zeros(2), "'Tensor'.*return {\"label\""),
        ({}, r"predict\(\)"),
        (None, "'NoneType'"),
        ({"x": torch.tensor(1.0)}, r"^x: .*predict\(\).*'\(\)'"),
        ({"x": "text"}, "^x: .*'str'"),
        ({"x": torch.zeros(3)}, r" 2 .*'\(3,\)'"),
        ({"x": ["a"]}, " 2 .*'1 items'"),
        ({"x": [object(), 1]}, "^x: .*'object'"),
        ({"x": [{1: 2}, 1]}, "^x: .*'dict'"),
        ({3: torch.zeros(2)}, " 3"),
        ({"index": torch.zeros(2)}, "'index'"),
    ],
)
def test_what_predict_must_not_give(output: object, says: str, tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ContractError, match=says) as refused, PredictionWriter(tmp_path) as written:
        written.add(output, 2, first=0)
    messages.check(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ({"x": torch.zeros(2)}, r"\['x'\].*: x, w"),
        (
            {"x": torch.zeros(2), "w": torch.zeros(2, 11)},
            r"^w: .*float32 \(10,\).*'float32 \(11,\)'",
        ),
        ({"x": torch.zeros(2), "w": torch.zeros(2, 10).int()}, "^w: .*'int32"),
        ({"x": torch.zeros(2), "w": [[0.0] * 10] * 2}, "^w: .*'list'"),
    ],
)
def test_what_may_not_change(output: object, says: str, tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ContractError, match=says) as refused, PredictionWriter(tmp_path) as written:
        written.add(BATCH, 2, first=0)
        written.add(output, 2, first=2)
    messages.check(refused.value)
    assert list(tmp_path.iterdir()) == []
