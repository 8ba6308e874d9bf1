from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import roost
from roost.base.errors import ConfigError, ContractError
from roost.config import build
from roost.project import native
from roost.train.data.sampled import Sampled
from tests.project.projects import HOOKS, RUNNER, project
from tests.train.parts import weights


def load(*arguments: Any, **options: Any) -> native.Experiment:
    return native.load(project(*arguments, **options), project="/the/project", device="cpu")


def test_builds_runner_data_and_hooks(tmp_path: Path) -> None:
    experiment = load(tmp_path, hooks=["Hooks.py:Rules"])
    assert experiment.runner.args["width"] == 3
    assert experiment.runner.info == {"classes": 2}
    assert type(experiment.runner).__module__ == "Model.Runner"
    assert len(experiment.data.train) == 40
    (hook,) = experiment.hooks
    assert hook.name == "Rules"
    assert hook.args["width"] == 3
    assert experiment.settings.max_steps == 6


def test_the_same_seed_builds_the_same_weights_whatever_the_data_drew(tmp_path: Path) -> None:
    drawing = """
import torch, roost
class Dataset(roost.Dataset):
    def build(self):
        torch.rand(self.args["draws"])
        return roost.Data(train=[torch.rand(1)] * 4)
"""
    found = []
    for name, seed, draws in (("a", 0, 1), ("b", 0, 5), ("c", 1, 1)):
        torch.manual_seed(len(found))
        experiment = load(tmp_path / name, dataset=drawing, seed=seed, draws=draws)
        found.append(weights(experiment.runner))
        build.forget(tmp_path)
    assert found[0] == found[1] != found[2]


def test_settings_are_resolved(tmp_path: Path) -> None:
    package = project(tmp_path, where="${project}/data", here="${package}/x")
    values, settings = native.resolved(package, "/the/project")
    assert values["where"] == "/the/project/data"
    assert values["here"] == f"{package.path}/x"
    assert settings.data.batch_size == 10


def test_a_wrong_override_is_blamed_on_its_session(tmp_path: Path) -> None:
    package = project(tmp_path, provenance={"data.batch_size": "config.yaml:7"})
    package.new_session({"overrides": []})
    package.new_session({"overrides": ["data.batch_size=0", "save_root=${nothing}"]})
    with pytest.raises(ConfigError, match=r"save_root: .*\(at command line of session 2\)"):
        native.resolved(package, "")
    package.new_session({"overrides": ["save_root=runs"]})
    with pytest.raises(ConfigError, match=r"data\.batch_size: .*\(at command line of session 2\)"):
        native.resolved(package, "")


def test_prepare_comes_before_build(tmp_path: Path) -> None:
    ordered = """
import torch, roost
class Dataset(roost.Dataset):
    def prepare(self): self.prepared = True
    def build(self):
        assert self.prepared
        return roost.Data(train=[torch.zeros(1)])
"""
    load(tmp_path, dataset=ordered)


RUNNER_WITHOUT_LOSS = """
import roost
from torch import nn
class Runner(roost.Runner):
    def build(self): self.net = nn.Linear(1, 1)
"""


@pytest.mark.parametrize(
    ("runner", "message"),
    [
        (RUNNER_WITHOUT_LOSS, r"Runner has no loss\(\).*def loss\(self, batch\)"),
        (
            "class Runner: pass",
            r"^runner: is no roost.Runner; received 'Model/Runner.py:Runner' \(at config.yaml:1\)",
        ),
        ("Runner = 3", r"runner: .*neither a class nor a function"),
        ("def Runner(): pass", r"is no roost.Runner"),
        ("class Other: pass", r"Model/Runner.py has no 'Runner'.*it has Other"),
        (RUNNER.replace("build", "make"), r"Runner has no build\(\)"),
        (
            RUNNER_WITHOUT_LOSS.replace("self.net = nn.Linear(1, 1)", "pass") + "    def loss(self, b): pass",
            r"no parameters",
        ),
    ],
)
def test_runners_that_break_the_contract(runner: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((ContractError, ConfigError), match=message):
        load(tmp_path, runner=runner, provenance={"runner": "config.yaml:1"})


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [("loss", "nn.MSELoss()", "module"), ("evaluate", "3", "value"), ("device", "'cpu'", "value")],
)
def test_a_name_assigned_over_in_build(name: str, value: str, kind: str, tmp_path: Path) -> None:
    runner = RUNNER_WITHOUT_LOSS.replace("self.net = nn.Linear(1, 1)", "\n        self.net = nn.Linear(1, 1)")
    runner += f"        self.{name} = {value}\n    def loss(self, batch): return self.net(batch).mean()\n"
    with pytest.raises(ContractError, match=rf"self\.{name} is a .*call it self\.{name}_{kind}"):
        load(tmp_path, runner=runner)


def test_update_alone_is_enough(tmp_path: Path) -> None:
    load(tmp_path, runner=RUNNER_WITHOUT_LOSS + "    def update(self, stepper, batches): return {}\n")


def test_an_error_of_the_project_s_own_passes_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        load(tmp_path, runner="1 / 0")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("Hooks.py:NotAHook", r"hooks.0: is no roost.Hook; received 'Hooks.py:NotAHook'"),
        ("Hooks.py:Missing", r"Hooks.py has no 'Missing'"),
        ("Nowhere.py:Rules", r"there is no file Nowhere.py"),
        (
            "Hooks.py:Needs",
            r"Needs needs interval, but roost makes it without arguments.*class: Hooks.py:Needs, interval",
        ),
        ("Hooks.py:WrongMethods", r"WrongMethods has no build|is no roost.Hook"),
    ],
)
def test_hooks_that_are_none(path: str, message: str, tmp_path: Path) -> None:
    code = (
        HOOKS
        + """
class NotAHook: pass
class WrongMethods(roost.Runner): pass
class Needs(roost.Hook):
    def __init__(self, interval, *more, other=3, **rest): pass
"""
    )
    with pytest.raises((ContractError, ConfigError), match=message):
        load(tmp_path, hooks_code=code, hooks=[path])


# --- what Dataset.build gives ------------------------------------------------------------------------------

SET = TensorDataset(torch.zeros(4, 1))


class Sized(list[int]):
    """Says any length."""

    def __init__(self, length: Any) -> None:
        super().__init__()
        self.length = length

    def __len__(self) -> int:
        return self.length  # type: ignore[no-any-return]


class Stream(IterableDataset[int]):
    """Has a length, as some do, and an index only in name."""

    def __iter__(self) -> Iterator[int]:
        return iter([1, 2, 3])

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, r"Dataset.build\(\) must return roost.Data; received 'NoneType'.*roost\.Data\(train="),
        (SET, r"must return roost.Data; received 'TensorDataset'"),
        ({"train": SET}, r"received 'dict'"),
        ((SET, SET), r"received 'tuple'"),
        (roost.Data(train=None), r"gives no training set"),
        (roost.Data(train={}), r"gives no training set"),
        (roost.Data(train={"a": None}), r"gives no training set"),
        (roost.Data(train={3: SET}), r"the train sets need names without a slash; received 3"),
        (roost.Data(train=SET, valid={"a/b": SET}), r"the valid sets need names without a slash"),
        (
            roost.Data(train={"a": SET, "b": Stream()}),
            r"the train/b set is a Stream, which has no len\(\) or no \[index\], and several training sets",
        ),
        (roost.Data(train={"a": DataLoader(SET)}), r"the train/a set is a DataLoader, which has no len"),
        (roost.Data(train=SET, collate={"tran": list}), r"collate is for 'tran'.*did you mean 'train'"),
        (roost.Data(train=SET, collate={"valid/x": list}), r"no such set.*it may be for train, valid, test"),
        (roost.Data(train=TensorDataset), r"the train set is the class TensorDataset itself"),
        (roost.Data(train=Sized(4.5)), r"len\(\) of the train set \(Sized\) is no number of samples: "),
        (roost.Data(train=Sized(-1)), r"the len\(\) of the train set"),
        (
            roost.Data(train=SET, valid=SET, collate={"x": list}),
            r"it may be for train, valid, test, predict$",
        ),
        (roost.Data(train=SET, collate={"train": 3}), r"collate for train is no function; received 3"),
        (roost.Data(train=SET, collate=3), r"collate is no function; received 3"),
        (roost.Data(train=SET, valid=[]), r"the valid set is empty"),
        (roost.Data(train=[]), r"the train set is empty"),
        (
            roost.Data(train=SET, test={"a": SET, "b": TensorDataset(torch.zeros(0))}),
            r"the test/b set is empty",
        ),
        (
            roost.Data(train=3),
            r"the train set is a int, which has neither len\(\) and \[index\] nor iter\(\)",
        ),
        (roost.Data(train=SET, test={"x": lambda: SET}), r"the test/x set is a function"),
    ],
)
def test_sets_that_break_the_contract(data: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message) as caught:
        native.checked(data, roost.Dataset)
    assert "To mend it: " in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        roost.Data(train=SET),
        roost.Data(train=[1, 2], valid={}, test={"a": SET, "b": None}),
        roost.Data(train=torch.zeros(3, 2), valid={"a": [1]}),
        roost.Data(train={"a": SET, "b": [1], "c": None}),
        roost.Data(train=Stream(), valid=DataLoader(SET), test=Sampled(lambda *_: ([], 0))),
        roost.Data(train=SET, valid={"a": [1]}, collate={"train": list, "valid/a": list, "test": None}),
    ],
)
def test_sets_that_keep_it(data: roost.Data) -> None:
    assert native.checked(data, roost.Dataset) is data
