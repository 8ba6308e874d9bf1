"""A look at the data, in this process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.package.package import PackageFolder
from roost.package.results import check_findings
from roost.package.results.data_report import SplitReport
from roost.worker.__main__ import main
from tests.messages import Messages
from tests.project.projects import project

COPIED = {"files": 3, "seconds": 0.5}

SETS = """
import random
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
import roost

CUT = 0

class Speech:
    def __init__(self, number):
        self.lengths = [2 + index % 5 for index in range(number)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.rand(self.lengths[index])

class Ignoring(Speech):
    def __getitem__(self, index):
        return torch.tensor(random.SystemRandom().random())

class Items(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(10.0))

def pad(samples):
    return {"x": torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)}

def sample(state, index, augment):
    return (None if index % 2 else torch.zeros(4)), index + 1

class Dataset(roost.Dataset):
    def build(self):
        return roost.Data(**SETS)
"""


def looked(
    sets: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, code: int = 0, **settings: Any
) -> dict[str, SplitReport]:
    """What is found of these arguments of `roost.Data`."""
    dataset = SETS.replace("SETS", sets)
    given = {"data": {"batch_size": 4, "num_workers": 0}, **settings}
    package: PackageFolder = project(folder, dataset=dataset, **given)
    monkeypatch.chdir(package.path)
    package.new_session(
        {"overrides": [], "device": "cpu", "project": "/nowhere", "copied": COPIED, "kind": "data"}
    )
    for name in ("stdout", "stderr"):  # main puts its own in their place
        monkeypatch.setattr(sys, name, getattr(sys, name))
    assert main([str(package.path), "data"]) == code
    found = check_findings.read(package.path)
    return {name: msgspec.convert(one, SplitReport) for name, one in found.measured.items()}


def test_a_run_that_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], messages: Messages
) -> None:
    valid = '{"a": TensorDataset(torch.zeros(6)), "b": Items()}'
    sets = f'{{"train": Speech(20), "valid": {valid}, "collate": {{"train": pad}}}}'
    data = {"batch_size": 4, "num_workers": "auto"}
    found = looked(sets, tmp_path, monkeypatch, data=data, gradient_accumulation_steps=2)
    assert list(found) == ["train", "valid/a", "valid/b"]
    train, array, items = found.values()
    assert (train.num_batches, train.num_steps, train.num_workers) == (5, 3, 0)
    assert " 4 " in train.plan and " 5 " in train.plan and train.workers
    messages.check(f"{train.plan}\n{train.seeds}")
    assert train.sizes is not None and train.sizes.padding is not None and train.sizes.padding > 0
    assert train.batch is not None and train.times is not None and train.inexact == []
    assert [part.name for part in train.batch.parts] == ["x"] and train.batch.num_samples == 4
    assert (array.num_batches, array.num_steps) == (2, None)
    messages.check(array.seeds)
    assert array.times is not None and array.times.num_batches == 2, "one pass"
    assert (items.num_batches, items.workers, items.sets[0].kind) == (None, "", "iterable")
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "copy           0.50 s  3 files" and lines[-1].startswith("valid/b ")
    assert any(line.startswith("num_workers: 0 ") for line in lines)


def test_what_differs_from_a_set_with_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    sets = '{"train": roost.Sampled(sample, length=6), "valid": DataLoader(TensorDataset(torch.zeros(6)))}'
    train, valid = looked(sets, tmp_path, monkeypatch).values()
    assert train.times is not None and train.times.num_empty == train.times.num_batches // 2 > 0
    assert train.num_batches == 6 and train.sizes is None
    assert "DataLoader" in valid.plan
    messages.check(f"{valid.plan}\n{valid.seeds}")


def test_a_set_that_ignores_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    (train,) = looked('{"train": Ignoring(8)}', tmp_path, monkeypatch).values()
    assert len(train.inexact) == 1
    messages.check(f"{train.seeds}\n{train.inexact[0]}")


@pytest.mark.parametrize("mode", ["min_size", "sequential"])
def test_several_training_sets(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = '{"train": {"a": Speech(20), "b": Speech(8)}, "collate": pad}'
    data = {"batch_size": 4, "num_workers": 0, "mix": {"mode": mode}}
    (train,) = looked(sets, tmp_path, monkeypatch, data=data).values()
    assert [one.name for one in train.sets] == ["train/a", "train/b"] and train.batch is not None
    names = [part.name for part in train.batch.parts]
    assert names == (["a.x", "b.x"] if mode == "min_size" else ["x"])


def test_a_sample_that_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is known of its set is written down all the same."""
    sets = '{"train": [torch.zeros(1)] * 5 + [torch.zeros(2)] * 3}'
    data = {"batch_size": 4, "num_workers": 0, "shuffle": False}
    (train,) = looked(sets, tmp_path, monkeypatch, code=1, data=data).values()
    assert train.batch is not None and train.times is not None and train.times.num_batches == 1
    out, err = capfd.readouterr()
    assert out.splitlines()[-1].startswith("train ") and out.splitlines()[-1].endswith("failed")
    assert "[1]" in err and "[2]" in err
