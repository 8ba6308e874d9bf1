"""The process that predicts."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roost.analysis import analysis_folder
from roost.base.errors import ContractError, NotFound
from roost.package import live_progress, sessions
from roost.package.checkpoints import checkpoint, selection
from roost.package.package import PackageFolder
from roost.package.results import predictions
from roost.worker.results import predict_task
from tests.messages import Messages
from tests.project.predicting import READS, predicting, rows
from tests.project.projects import RUNNER
from tests.project.trained import trained


def predicted(package: PackageFolder, data: str = "valid", which: str | None = None, **changed: Any) -> Path:
    """Does what the operation would ask; gives the folder of the prediction."""
    root = package.path / predictions.NAME
    place = root / f".place-{len(list(root.iterdir())) if root.is_dir() else 0}"
    place.mkdir(parents=True)
    body = {
        "source": data,
        "folder": "/nowhere",
        "chosen": selection.to_json(selection.parse_selection(package, which)),
        "averaged": None,
        "device": "cpu",
        "project": "/nowhere",
        "output": None,
        "batch_size": None,
        "num_workers": 0,
        "limit": None,
        "command": ["roost", "predict"],
    }
    request = {"kind": "prediction", **sessions.own_identity(), **body, **changed}
    (place / analysis_folder.REQUEST).write_text(json.dumps(request))
    before = Path.cwd()
    os.chdir(package.path)
    try:
        assert predict_task.predict(package, place) == "finished"
    finally:
        os.chdir(before)
    seen = live_progress.read(place / "progress")
    result = Path(json.loads((place / analysis_folder.RESULT).read_bytes())["folder"])
    meta = predictions.read(result)
    assert seen is not None and meta is not None and seen.samples == meta.count
    return result


def lines(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / predictions.PREDICTIONS_FILE).read_text().splitlines()]


def scores(package: PackageFolder, id: int) -> torch.Tensor:
    """What the model gives by hand, in batches of 10."""
    state = checkpoint.read(checkpoint.checkpoint_folder(package.checkpoints, id), only=["model"])[1][
        "model"
    ]["state"]
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 1)).eval()
    net.load_state_dict({name.removeprefix("net."): value for name, value in state.items()})
    with torch.no_grad():
        return torch.cat([net(part).squeeze(1) for part in torch.split(rows(), 10)])


def test_the_same_as_by_hand(tmp_path: Path) -> None:
    package = predicting(tmp_path)
    for which, id in ((None, 2), ("0", 0)):
        place = predicted(package, which=which)
        found = lines(place)
        assert [line["index"] for line in found] == list(range(40))
        assert torch.equal(torch.tensor([line["score"] for line in found]), scores(package, id))
        assert [line["label"] == "yes" for line in found] == [line["score"] > 0 for line in found]
        assert np.array_equal(np.load(place / "features.npy"), rows().repeat(1, 5).numpy())
        meta = predictions.read(place)
        assert meta is not None and (meta.checkpoint, meta.source, meta.count) == (id, "valid", 40)
        assert meta.values["features"] == {"file": "features.npy", "shape": [40, 20], "dtype": "float32"}
    place = predicted(package, limit=13, batch_size=4, output=str(tmp_path / "out"))
    assert place == tmp_path / "out" and [line["index"] for line in lines(place)] == list(range(13))
    assert sorted(path.name for path in package.path.glob("predictions/[0-9]*")) == ["1", "2"]


def test_damaged_weights_are_passed_over_aloud(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    package = predicting(tmp_path)
    file = checkpoint.checkpoint_folder(package.checkpoints, 2) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    meta = predictions.read(predicted(package))
    assert meta is not None and meta.checkpoint == 1
    said = capsys.readouterr().out
    assert "state_2.ckpt" in said and re.search(r"checkpoint 1\b.*\b4\b", said)
    with pytest.raises(NotFound, match="'ema'") as refused:
        predicted(package, which="0", averaged="ema")
    messages.check(refused.value)


def test_sets_of_the_datasets_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    package = predicting(tmp_path, dataset=READS, data={"batch_size": 4, "limit_valid_batches": 1})
    (tmp_path / "rows.txt").write_text("1 2 3 4\n5 6 7 8\n")
    place = predicted(package, "rows.txt", folder=str(tmp_path))
    assert np.load(place / "features.npy")[:, :4].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    place = predicted(package, "stream")
    assert np.load(place / "features.npy")[:, 0].tolist() == list(range(11))
    assert len(lines(predicted(package, limit=39))) == 39
    assert "data.limit_valid_batches " in capsys.readouterr().out
    with pytest.raises(ContractError, match=r"Dataset\.predict\(\)") as refused:
        predicted(package, "none")
    messages.check(refused.value)


def test_a_batch_that_collate_drops_counts(tmp_path: Path) -> None:
    dataset = """
import torch
from torch.utils.data import TensorDataset
import roost

class Dataset(roost.Dataset):
    def build(self):
        x = torch.arange(160.0).reshape(40, 4)
        data = TensorDataset(x, (x.sum(1) > 300).float())
        return roost.Data(train=data, valid=data, collate={"valid": collate})

def collate(samples):
    return None if samples[0][0][0] == 40 else torch.utils.data.default_collate(samples)
"""
    package = predicting(tmp_path, dataset=dataset)
    found = lines(predicted(package))
    assert [line["index"] for line in found] == [*range(10), *range(20, 40)]


@pytest.mark.parametrize(
    ("body", "says", "first"),
    [
        ("return self.net(batch[0])", r"predict\(\)", 0),
        ("return {'x': self.net(batch[0]).mean()}", r"x: .*predict\(\)", 0),
        ("if batch[0][0, 0] == self.info['at']: raise KeyError('odd')\n        return {'x': batch[1]}", "odd",
         20),
    ],
)  # fmt: skip
def test_a_predict_that_goes_wrong(body: str, says: str, first: int, tmp_path: Path) -> None:
    runner = f"{RUNNER}\n    def predict(self, batch):\n        {body}\n"
    dataset = READS.replace('"classes": 2', '"at": float(x[20, 0])')
    package = trained(tmp_path, runner=runner, dataset=dataset)
    with pytest.raises(Exception, match=says) as raised:
        predicted(package)
    (note,) = raised.value.__notes__
    assert f" {first} " in note and f" {first + 9} " in note and "valid" in note
    assert not list(package.path.glob("predictions/[0-9]*")), "nothing half"


def test_a_runner_without_it(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ContractError, match=r"Runner .*predict\(\).*`def predict\(self, batch\)`") as refused:
        predicted(trained(tmp_path))
    messages.check(refused.value)


def test_with_an_average(tmp_path: Path) -> None:
    package = predicting(tmp_path, averages={"slow": {"decay": 0.5}})
    (raw, averaged) = (lines(predicted(package, averaged=name)) for name in (None, "slow"))
    parts = checkpoint.read(checkpoint.checkpoint_folder(package.checkpoints, 2))[1]
    hook = parts["trainer"]["hooks"]["average/slow"]
    assert hook["count"] == 6 and raw != averaged
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 1)).eval()
    net.load_state_dict({name.removeprefix("net."): value for name, value in hook["weights"].items()})
    with torch.no_grad():
        expected = torch.cat([net(part).squeeze(1) for part in torch.split(rows(), 10)])
    assert torch.equal(torch.tensor([line["score"] for line in averaged]), expected)
    meta = predictions.read(package.path / predictions.NAME / "2")
    assert meta is not None and meta.averaged == "slow"
