"""Weights that roost wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from roost.base.errors import CheckpointError, NotFound, UsageError
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.model.module_state import ModuleState
from roost.train.optim.weight_average import Average
from roost.train.progress import Progress
from roost.train.weights import package_weights
from tests.messages import Messages


def module(value: float) -> nn.Module:
    made = nn.Linear(2, 1)
    with torch.no_grad():
        made.weight.fill_(value)
    return made


def package(folder: Path, *, best: list[Any] | None = None) -> PackageFolder:
    """Checkpoints 0, 1, 2 with weights 0, 1, 2; the best is 1; an average, ten times as large."""
    values = {"checkpoint": {"best": best}} if best is not None else {}
    made = PackageFolder.create(folder, name="run", values=values)
    for id, loss in enumerate([3.0, 1.0, 2.0]):
        average = Average()
        average.update(module(10.0 * id))
        hooks = {"average/ema": average.state_dict(), "average/new": Average().state_dict(), "Save": {}}
        parent = checkpoint.read_manifests(made.checkpoints)[-1] if id else None
        checkpoint.write(
            made.checkpoints,
            {"model": ModuleState(module(id)).state_dict(), "trainer": {"hooks": hooks}},
            Manifest(id=id, step=id * 5, epoch=0, batch=0, line=checkpoint.lineage_after(parent, id),
                 metrics={"valid/loss": loss}),
        )  # fmt: skip
    return made


def first(source: package_weights.Source) -> float:
    return float(source.weights["weight"][0, 0])


RULES = [{"monitor": "valid/loss", "mode": "min"}]


def test_the_newest_the_best_or_one_by_its_id(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path, best=RULES)
    newest = package_weights.read(made.path)
    assert first(newest) == 2 and "checkpoint 2 " in newest.description and "step 10" in newest.description
    messages.check(newest.description)
    stored = checkpoint.read_manifest(made.checkpoints / "state_2.ckpt").files["model.safetensors"]
    assert (newest.sha256, newest.size) == (stored["sha256"], stored["bytes"])
    assert first(package_weights.read(made.path, checkpoint="best")) == 1
    assert first(package_weights.read(made.path, checkpoint=0)) == 0
    with pytest.raises(NotFound) as refused:
        package_weights.read(made.path, checkpoint=7)
    assert all(fact in str(refused.value) for fact in ("7", "0, 1, 2"))
    messages.check(refused.value)


def test_the_best_needs_a_rule_and_a_value(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        package_weights.read(package(tmp_path / "a").path, checkpoint="best")
    assert "checkpoint: last" in str(refused.value)
    messages.check(refused.value)
    made = package(tmp_path / "b", best=[{"monitor": "valid/accuracy", "mode": "max"}])
    with pytest.raises(NotFound) as refused:
        package_weights.read(made.path, checkpoint="best")
    assert "valid/accuracy" in str(refused.value)
    messages.check(refused.value)


def test_an_average(tmp_path: Path, messages: Messages) -> None:
    path = package(tmp_path).path
    found = package_weights.read(path, average="ema")
    assert first(found) == 20 and not found.notes
    assert all(fact in found.description for fact in ("checkpoint 2 ", "step 10", "'ema'"))
    messages.check(found.description)
    raw = package_weights.read(path, average="new")
    (note,) = raw.notes
    assert first(raw) == 2 and "'new'" in note
    messages.check(note)
    with pytest.raises(NotFound) as refused:
        package_weights.read(path, average="emma")
    assert all(fact in str(refused.value) for fact in ("'ema'", "ema, new"))
    messages.check(refused.value)


def test_one_checkpoint(tmp_path: Path, messages: Messages) -> None:
    folder = package(tmp_path).checkpoints / "state_1.ckpt"
    assert first(package_weights.read(folder)) == 1
    assert first(package_weights.read(folder, average="ema")) == 10
    with pytest.raises(UsageError) as refused:
        package_weights.read(folder, checkpoint=1)
    messages.check(refused.value)


def test_the_checkpoints_of_a_loop_by_hand(tmp_path: Path) -> None:
    Checkpoints(tmp_path / "saved").save({"model": module(7)}, Progress()).wait()
    assert first(package_weights.read(tmp_path / "saved")) == 7


def test_a_damaged_one_is_passed_over_and_stays(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path)
    file = made.checkpoints / "state_2.ckpt" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    found = package_weights.read(made.path)
    assert first(found) == 1 and "state_2.ckpt" in found.notes[0]
    messages.check(found.notes[0])
    assert checkpoint.ids(made.checkpoints) == [0, 1, 2]
    with pytest.raises(CheckpointError) as refused:
        package_weights.read(made.path, checkpoint=2)
    assert "state_2.ckpt" in str(refused.value)
    messages.check(refused.value)


def test_a_damaged_best_one_is_passed_over_for_the_next_best(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path, best=RULES)
    folder = made.checkpoints / "state_1.ckpt"
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    found = package_weights.read(made.path, checkpoint="best")
    assert first(found) == 2 and "state_1.ckpt" in found.notes[0]
    messages.check(found.notes[0])
    (folder / "MANIFEST.json").write_bytes(b"torn")
    found = package_weights.read(made.path, checkpoint="best")
    assert first(found) == 2 and found.notes[0].startswith("state_1.ckpt: ")
    assert "MANIFEST.json" in found.notes[0]
    assert checkpoint.ids(made.checkpoints) == [0, 1, 2]


def test_folders_without_weights(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        package_weights.read(tmp_path)
    messages.check(refused.value)
    empty = PackageFolder.create(tmp_path, name="empty", values={})
    with pytest.raises(NotFound) as refused:
        package_weights.read(empty.path)
    assert "empty" in str(refused.value)
    messages.check(refused.value)
