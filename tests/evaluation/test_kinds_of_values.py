"""Every kind of value that `Runner.test` may return, in both formats of rows, and when `test` is called."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from roost.package.package import PackageFolder
from roost.package.results.evaluations import evaluation_folder, evaluation_rows, row_files
from tests.evaluation.evaluating import evaluate
from tests.project.trained import trained

DATASET = """
import roost
import torch


class Numbers(torch.utils.data.Dataset):
    ids = [17, 3, 29, 8, 11]
    groups = {"parity": [1, 1, 1, 0, None]}

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return torch.full((4,), float(index)), torch.tensor(index % 2)


class Dataset(roost.Dataset):
    def build(self):
        return roost.Data(train=Numbers(), valid=Numbers(), test=Numbers())
"""

RUNNER = """
import math
from pathlib import Path

import numpy as np
import roost
import torch
from torch import nn


class Runner(roost.Runner):
    def build(self):
        self.model = nn.Linear(4, 2)

    def loss(self, batch):
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def evaluate(self, batch):
        return {"loss": self.loss(batch)}

    def test(self, batch, cut=1):
        with Path(self.args["calls"]).open("a") as calls:
            calls.write("test\\n")
        sizes = [int(one[0]) for one in batch[0]]
        file = Path(self.args["calls"]).with_name("written.txt")
        file.write_text("of a file")
        return {
            "loss": nn.functional.cross_entropy(self.model(batch[0]), batch[1], reduction="none"),
            "score": [math.nan if size == 2 else size / cut for size in sizes],
            "hits": [size % 2 == 0 for size in sizes],
            "text": [f"größe {size} 🙂" for size in sizes],
            "ragged": [np.arange(size, dtype=np.int16) for size in sizes],
            "vector": batch[0].double(),
            "large": torch.arange(1500.0).expand(len(sizes), 1500),
            "mapping": [{"size": size, "parts": [1.5, None, math.inf]} for size in sizes],
            "picture": [roost.Media("image", torch.rand(8, 8)) for _ in sizes],
            "sound": [roost.Media("audio", torch.zeros(800), rate=8000) for _ in sizes],
            "figure": [drawn() for _ in sizes],
            "path": [file for _ in sizes],
        }


def drawn():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1, 1))
    figure.add_subplot().plot([1, 2])
    return figure
"""


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> PackageFolder:
    folder = tmp_path_factory.mktemp("numbers")
    return trained(
        folder,
        runner=RUNNER,
        dataset=DATASET,
        calls=str(folder / "calls"),
        width=None,
        max_steps=12,
        validate_every="2",
        data={"batch_size": 2, "num_workers": 0},
        averages={"ema": {"decay": 0.5}},
        checkpoint={"every": "2", "fast": 9, "best": [{"monitor": "valid/loss", "mode": "min", "top_k": 3}]},
    )


def test_training_and_validation_never_call_test(numbers: PackageFolder) -> None:
    assert not Path(numbers.args["calls"]).exists()


@pytest.mark.parametrize("rows_format", ["parquet", "jsonl"])
def test_every_kind_of_value_is_kept(
    numbers: PackageFolder, tmp_path: Path, rows_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "installed_format", lambda: rows_format)
    shutil.rmtree(numbers.path / evaluation_folder.NAME, ignore_errors=True)  # finished cells would be copied
    variants = tmp_path / "v.yaml"
    variants.write_text("list: {halved: {cut: 2}}")
    folder = evaluate(numbers, rows_format, checkpoints="ema,last,average(best:10)", variants=variants)
    cells = {one.path.parent.name: one for one in evaluation_folder.EvaluationFolder(folder).cells()}
    assert set(cells) == {"ema", "last", "average-best-10"}
    assert len({json.dumps(one.summary["metrics"]["loss"]) for one in cells.values()}) == 3
    found = cells["last"].path
    assert json.loads((found / "cell.json").read_text())["arguments"] == {"cut": 2}
    assert (found / f"rows.{rows_format}").is_file()
    rows = evaluation_rows.read_rows(found)
    assert rows.ids == [17, 3, 29, 8, 11] and set(rows.metrics) == {"loss", "score", "hits"}
    second, third, fourth = rows.row(1), rows.row(2), rows.row(3)
    assert second["score"] == 0.5 and math.isnan(third["score"]) and third["hits"] == 1
    assert second["text"] == "größe 1 🙂"
    assert [list(one["ragged"]) for one in (second, third, fourth)] == [[0], [0, 1], [0, 1, 2]]
    assert list(third["vector"]) == [2.0] * 4
    large = np.load(found / third["large"])
    assert np.array_equal(large, np.arange(1500, dtype=np.float32))
    assert third["mapping"] == {"size": 2, "parts": [1.5, None, math.inf]}
    for name in ("picture", "figure"):
        assert (found / third[name]).read_bytes()[1:4] == b"PNG"
    assert (found / third["sound"]).read_bytes()[:4] == b"RIFF"
    assert (found / third["path"]).read_text() == "of a file"
    assert [rows.row(index)["group/parity"] for index in range(5)] == ["1", "1", "1", "0", "(none)"]
