"""`roost.EvaluationData`: the rows of an evaluation as the samples of a set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import roost
from roost.base.errors import ContractError, NotFound
from tests.evaluation.made_evaluation import make_cell, make_evaluation


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    rows = [
        {
            "id": f"u{n}", "wer": n / 4, "count": n, "logits": np.full(3, n, np.float32), "text": f"t{n}",
            "group/speaker": "ab"[n % 2],
        }
        for n in range(6)
    ]  # fmt: skip
    rows[2] = {"id": "u2", "skipped/error": "boom"}
    rows[4]["big"] = {"file": "files/u4.big.npy"}
    rows[5]["big"] = {"file": "files/u5.big.wav"}
    folder = make_cell(tmp_path / "cell", rows)
    (folder / "files").mkdir()
    np.save(folder / "files/u4.big.npy", np.arange(5))
    return folder


def test_samples_are_the_rows_that_were_not_skipped(cell: Path) -> None:
    data = roost.EvaluationData(cell)
    assert len(data) == 5 and data.ids == ["u0", "u1", "u3", "u4", "u5"]
    assert data.groups == {"speaker": ["a", "b", "b", "a", "b"]}
    sample = data[2]
    assert sample["wer"].dtype == torch.float32 and sample["wer"] == 0.75 and sample["text"] == "t3"
    assert sample["logits"].tolist() == [3, 3, 3] and sample["big"] is None
    assert data[3]["big"].tolist() == [0, 1, 2, 3, 4] and data[-1]["big"] == str(cell / "files/u5.big.wav")
    with pytest.raises(IndexError):
        data[5]


def test_fields_are_those_of_a_loader(cell: Path) -> None:
    logits, texts = next(
        iter(DataLoader(roost.EvaluationData(cell, fields=["logits", "text"]), batch_size=5))
    )
    assert logits.shape == (5, 3) and texts[0] == "t0"
    assert roost.EvaluationData(cell, fields={"x": "logits"})[0]["x"].tolist() == [0, 0, 0]
    with pytest.raises(ContractError) as caught:
        roost.EvaluationData(cell, fields=["logit"])
    assert caught.value.setting == "fields" and "logits" in str(caught.value)


def test_a_set_has_the_short_name_of_the_command_line(tmp_path: Path) -> None:
    folder = make_evaluation(tmp_path)
    chosen = {"variant": "beam", "checkpoint": "best"}
    short = roost.EvaluationData(folder, dataset="clean", **chosen)
    assert short.ids == roost.EvaluationData(folder, dataset="test/clean", **chosen).ids
    with pytest.raises(NotFound, match="'dataset': 'train'"):
        roost.EvaluationData(folder, dataset="train", **chosen)


def test_a_cell_of_an_evaluation(tmp_path: Path) -> None:
    root = make_evaluation(tmp_path / "run")
    data = roost.EvaluationData(root, variant="beam", checkpoint="best", fields=["sound", "attention"])
    sound, attention = data[0]
    assert len(data) == 23 and Path(sound).is_file() and attention.endswith(".png")
    with pytest.raises(ContractError, match="2 cells"):
        roost.EvaluationData(root, variant="greedy")
    with pytest.raises(NotFound):
        roost.EvaluationData(root, variant="wide")
    with pytest.raises(NotFound):
        roost.EvaluationData(tmp_path)
