"""Where the data of a prediction come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import roost
from roost.base.errors import ContractError, NotFound
from roost.config.sections.data import DataSettings, SplitSettings
from roost.config.sections.yaml_project import DatasetSettings
from roost.config.settings import Settings, parse_settings
from roost.project.batch_plans import no_location
from roost.project.yaml.yaml_project import dataset_class
from roost.worker.results import prediction_source
from roost.worker.results.prediction_source import PredictionSource
from tests.messages import Messages

CPU = torch.device("cpu")
X = torch.arange(20.0).reshape(10, 2)


class Plain(roost.Dataset):
    def build(self) -> roost.Data:
        return roost.Data(
            train=TensorDataset(X), valid={"clean": TensorDataset(X + 1)}, test=TensorDataset(X + 2)
        )


class Reads(Plain):
    def predict(self, source: str) -> Any:
        return {"rows": [X[0], X[1], X[2]], "none": None, "class": TensorDataset}.get(source, [source, "end"])


def asked(**data: Any) -> Settings:
    return parse_settings({"runner": "a.py:A", "dataset": "b.py:B", "max_steps": 1, "seed": 3, "data": data})


def found(
    name: str, dataset: roost.Dataset, folder: Path, settings: Settings | None = None
) -> PredictionSource:
    made = settings or prediction_source.without_limits(asked(), batch_size=4, num_workers=0)
    return prediction_source.open_source(
        name, dataset, dataset.build(), made, folder=folder, device=CPU, where=no_location
    )


def drawn(of: PredictionSource) -> list[Any]:
    return [value for value, number, *_ in of.batches.once() if number]


@pytest.mark.parametrize(("name", "added"), [("train", 0), ("valid/clean", 1), ("test", 2)])
def test_a_set_in_its_order_whatever_the_settings_leave_out(name: str, added: int, tmp_path: Path) -> None:
    settings = asked(
        limit_train_batches=1,
        limit_valid_batches=1,
        limit_test_batches=1,
        valid={"batch_size": 3},
        num_workers=0,
    )
    assert (
        prediction_source.ignored_limit(settings.data, name) == f"data.limit_{name.partition('/')[0]}_batches"
    )
    for batch_size in (None, 4):
        made = prediction_source.without_limits(settings, batch_size=batch_size, num_workers=0)
        of = found(name, Plain({}), tmp_path, made)
        batches = [value[0] for value in drawn(of)]
        assert torch.equal(torch.cat(batches), X + added) and of.num_samples == 10
        size = batch_size or (3 if name == "valid/clean" else 32)
        assert len(batches[0]) == min(size, 10)


def test_what_the_dataset_makes_of_a_name(tmp_path: Path, messages: Messages) -> None:
    of = found("rows", Reads({}), tmp_path)
    assert torch.equal(torch.cat(drawn(of)), X[:3]) and (of.name, of.num_samples) == ("rows", 3)
    (tmp_path / "here").mkdir()
    assert drawn(found("here", Reads({}), tmp_path)) == [[str(tmp_path / "here"), "end"]], "its absolute path"
    assert drawn(found("elsewhere", Reads({}), tmp_path)) == [["elsewhere", "end"]], "as it was typed"
    for name, received in (("none", "None"), ("class", "'type'")):
        with pytest.raises(ContractError, match=rf"Reads\.predict\(\) .*{received}") as refused:
            found(name, Reads({}), tmp_path)
        messages.check(refused.value)


def test_a_file_of_arrays(tmp_path: Path, messages: Messages) -> None:
    np.save(tmp_path / "x.npy", X.numpy())
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    (value, *more) = drawn(found("x.npy", Plain({}), tmp_path))
    assert len(more) == 2 and torch.equal(value[0], X[:4])
    of = found(str(tmp_path / "x.csv"), Plain({}), Path("/"))
    assert torch.equal(drawn(of)[0][0], torch.tensor([[1.0, 2.0], [3.0, 4.0]])) and of.num_samples == 2
    with pytest.raises(NotFound, match=r"'.*/y\.npy'") as refused:
        found("y.npy", Plain({}), tmp_path)
    assert refused.value.setting == "--data"
    messages.check(refused.value)


def test_what_is_none_of_these(tmp_path: Path, messages: Messages) -> None:
    says = r"'tets'.*'test'.*train, valid/clean, test.*`def predict"
    with pytest.raises(NotFound, match=says) as refused:
        found("tets", Plain({}), tmp_path)
    messages.check(refused.value)


def test_a_dataset_that_is_a_section_has_no_code_to_write_in(tmp_path: Path, messages: Messages) -> None:
    np.save(tmp_path / "x.npy", X.numpy())
    asked = DatasetSettings(train={"class": "roost.Arrays", "arrays": str(tmp_path / "x.npy")})
    with pytest.raises(NotFound, match="'nope'") as error:
        found("nope", dataset_class(asked, tmp_path, no_location)({}), tmp_path)
    messages.check(error.value)
    fix = str(error.value.fix)
    assert "train" in fix and ".npy, .npz, .csv" in fix
    assert "(dataset: Dataset.py:Dataset)" in fix and "Configured" not in fix


def test_sizes_that_were_asked_for_hold_for_every_split() -> None:
    settings = asked(max_tokens=9, num_workers=2, valid={"max_tokens": 3}, mix={"mode": "sequential"})
    made = prediction_source.without_limits(settings, batch_size=5, num_workers=1).data
    assert (made.batch_size, made.max_tokens, made.mix, made.num_workers) == (5, None, None, 1)
    assert made.valid == SplitSettings(batch_size=5, num_workers=1) == made.test
    assert prediction_source.without_limits(settings, batch_size=None, num_workers=None) == settings
    assert (
        prediction_source.ignored_limit(DataSettings(), "valid") is None
        and prediction_source.ignored_limit(DataSettings(), "x.npy") is None
    )
