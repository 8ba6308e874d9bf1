from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import roost
from roost.base.errors import ConfigError, ContractError
from roost.config import objects
from roost.project import native_project
from roost.train.data.batch_function import Sampled
from tests.messages import Messages
from tests.project.projects import HOOKS, RUNNER, project
from tests.train.parts import weights


def load(*arguments: Any, **options: Any) -> native_project.Experiment:
    return native_project.load(project(*arguments, **options), project="/the/project", device="cpu")


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
        objects.unload_project(tmp_path)
    assert found[0] == found[1] != found[2]


def test_settings_are_resolved(tmp_path: Path) -> None:
    package = project(tmp_path, where="${project}/data", here="${package}/x")
    values, settings = native_project.resolve_settings(package, "/the/project")
    assert values["where"] == "/the/project/data"
    assert values["here"] == f"{package.path}/x"
    assert settings.data.batch_size == 10


def test_a_wrong_override_is_blamed_on_its_session(tmp_path: Path) -> None:
    package = project(tmp_path, provenance={"data.batch_size": "config.yaml:7"})
    package.new_session({"overrides": []})
    package.new_session({"overrides": ["data.batch_size=0", "save_root=${nothing}"]})
    with pytest.raises(ConfigError, match=r"\(at command line of session 2\)") as refused:
        native_project.resolve_settings(package, "")
    assert refused.value.setting == "save_root"
    package.new_session({"overrides": ["save_root=runs"]})
    with pytest.raises(ConfigError, match=r"\(at command line of session 2\)") as refused:
        native_project.resolve_settings(package, "")
    assert refused.value.setting == "data.batch_size"


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
        (RUNNER_WITHOUT_LOSS, r"Runner .*loss\(\).*def loss\(self, batch\)"),
        (
            "class Runner: pass",
            r"^runner: .*roost.Runner; .*'Model/Runner.py:Runner' \(at config.yaml:1\)",
        ),
        ("Runner = 3", "^runner: "),
        ("def Runner(): pass", r"^runner: .*roost\.Runner"),
        ("class Other: pass", r"Model/Runner.py .*'Runner'.* Other"),
        (RUNNER.replace("build", "make"), r"Runner .*build\(\)"),
        (
            RUNNER_WITHOUT_LOSS.replace("self.net = nn.Linear(1, 1)", "pass") + "    def loss(self, b): pass",
            "Runner.*parameters",
        ),
    ],
)
def test_runners_that_break_the_contract(
    runner: str, message: str, tmp_path: Path, messages: Messages
) -> None:
    with pytest.raises((ContractError, ConfigError), match=message) as refused:
        load(tmp_path, runner=runner, provenance={"runner": "config.yaml:1"})
    messages.check(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [("loss", "nn.MSELoss()", "module"), ("evaluate", "3", "value"), ("device", "'cpu'", "value")],
)
def test_a_name_assigned_over_in_build(name: str, value: str, kind: str, tmp_path: Path) -> None:
    runner = RUNNER_WITHOUT_LOSS.replace("self.net = nn.Linear(1, 1)", "\n        self.net = nn.Linear(1, 1)")
    runner += f"        self.{name} = {value}\n    def loss(self, batch): return self.net(batch).mean()\n"
    with pytest.raises(ContractError, match=rf"self\.{name} .*self\.{name}_{kind}"):
        load(tmp_path, runner=runner)


def test_update_alone_is_enough(tmp_path: Path) -> None:
    load(tmp_path, runner=RUNNER_WITHOUT_LOSS + "    def update(self, stepper, batches): return {}\n")


def test_an_error_of_the_project_s_own_passes_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        load(tmp_path, runner="1 / 0")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("Hooks.py:NotAHook", r"^hooks\.0: .*roost\.Hook.*'Hooks.py:NotAHook'"),
        ("Hooks.py:Missing", "Hooks.py .*'Missing'"),
        ("Nowhere.py:Rules", r"Nowhere\.py"),
        (
            "Hooks.py:Needs",
            "Needs .*interval.*class: Hooks.py:Needs, interval",
        ),
        ("Hooks.py:WrongMethods", r"WrongMethods.*build|roost\.Hook"),
    ],
)
def test_hooks_that_are_none(path: str, message: str, tmp_path: Path, messages: Messages) -> None:
    code = (
        HOOKS
        + """
class NotAHook: pass
class WrongMethods(roost.Runner): pass
class Needs(roost.Hook):
    def __init__(self, interval, *more, other=3, **rest): pass
"""
    )
    with pytest.raises((ContractError, ConfigError), match=message) as refused:
        load(tmp_path, hooks_code=code, hooks=[path])
    messages.check(refused.value)


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
        (None, r"Dataset.build\(\) .*roost.Data.*'NoneType'.*roost\.Data\(train="),
        (SET, r"roost.Data.*'TensorDataset'"),
        ({"train": SET}, "'dict'"),
        ((SET, SET), "'tuple'"),
        (roost.Data(train=None), "training set"),
        (roost.Data(train={}), "training set"),
        (roost.Data(train={"a": None}), "training set"),
        (roost.Data(train={3: SET}), "train .* 3"),
        (roost.Data(train=SET, valid={"a/b": SET}), "valid .*/"),
        (
            roost.Data(train={"a": SET, "b": Stream()}),
            r"train/b .*Stream.*len\(\) .*\[index\]",
        ),
        (roost.Data(train={"a": DataLoader(SET)}), r"train/a .*DataLoader.*len\(\)"),
        (roost.Data(train=SET, collate={"tran": list}), "collate .*'tran'.*'train'"),
        (roost.Data(train=SET, collate={"valid/x": list}), "'valid/x'.*train, valid, test"),
        (roost.Data(train=TensorDataset), "train .*TensorDataset"),
        (roost.Data(train=Sized(4.5)), r"len\(\) .*train .*\(Sized\)"),
        (roost.Data(train=Sized(-1)), r"len\(\) .*train .*"),
        (
            roost.Data(train=SET, valid=SET, collate={"x": list}),
            "train, valid, test, predict$",
        ),
        (roost.Data(train=SET, collate={"train": 3}), "collate .*train .* 3"),
        (roost.Data(train=SET, collate=3), "collate .* 3"),
        (roost.Data(train=SET, valid=[]), "valid "),
        (roost.Data(train=[]), "train "),
        (
            roost.Data(train=SET, test={"a": SET, "b": TensorDataset(torch.zeros(0))}),
            "test/b ",
        ),
        (
            roost.Data(train=3),
            r"train .* int.*len\(\) .*\[index\] .*iter\(\)",
        ),
        (roost.Data(train=SET, test={"x": lambda: SET}), "test/x .*function"),
    ],
)
def test_sets_that_break_the_contract(data: Any, message: str, messages: Messages) -> None:
    with pytest.raises(ContractError, match=message) as caught:
        native_project.check_data(data, roost.Dataset)
    messages.check(caught.value)
    assert caught.value.fix


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
    assert native_project.check_data(data, roost.Dataset) is data
