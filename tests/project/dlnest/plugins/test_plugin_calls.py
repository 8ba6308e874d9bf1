from __future__ import annotations

from typing import Any

import pytest

from roost.project.dlnest.classes.dataset_base import DatasetBase
from roost.project.dlnest.classes.life_cycle import LifeCycleBase
from roost.project.dlnest.classes.runner_base import RunnerBase
from roost.project.dlnest.lifecycle_calls import LifeCycleCalls
from roost.project.dlnest.plugins.plugin_calls import add_plugins, checkDictOutputPlugins, checkPlugins


class Plugin:
    _NAME = "Mine"

    def runnerInit(self: Any, args: Any, datasetInfo: Any = None) -> None:
        self.calls = [f"plugin init {args} {datasetInfo}"]

    def datasetInit(self: Any, args: Any) -> None:
        self.calls = ["plugin dataset init"]

    def initLog(self: Any) -> Any:
        return {"theirs": 1, "loss": "theirs"}

    def visualize(self: Any, log: Any, iter: int, epoch: int) -> None:
        self.calls.append(f"plugin visualize {epoch} {iter}")

    def BTrain(self: Any) -> str:
        return "Skip"

    def needValidation(self: Any, epoch: int, logdict: Any, args: Any) -> bool:
        raise AssertionError("decisions are the project's")

    def helper(self: Any) -> None:
        raise AssertionError("a name that only the project has")

    def marked(self: Any) -> dict[str, int]:
        return {"theirs": 2}

    def evaluateAll(self: Any) -> None:
        self.calls.append("plugin evaluateAll")


class Failing:
    _NAME = "Failing"

    def visualize(self: Any, log: Any, iter: int, epoch: int) -> None:
        raise ValueError("no display")


class Runner(RunnerBase):
    def init(self, args: Any, datasetInfo: Any = None) -> None:
        self.calls.append("init")

    def initLog(self) -> Any:
        return {"loss": []}

    def visualize(self, epoch: int, iter: int, log: Any) -> None:
        self.calls.append("visualize")

    def helper(self) -> str:
        return "own"

    @checkDictOutputPlugins
    def marked(self) -> dict[str, int]:
        return {"own": 1}

    @checkPlugins
    def evaluateAll(self) -> None:
        self.calls.append("evaluateAll")


def test_functions_run_before_the_methods_of_their_names() -> None:
    runner: Any = Runner()
    add_plugins(runner, [Plugin], "runner", reports=True)
    runner.init({"a": 1}, {"b": 2})
    runner.visualize(log={}, iter=3, epoch=4)
    runner.evaluateAll()
    assert runner.calls == [
        "plugin init {'a': 1} {'b': 2}", "init", "plugin visualize 4 3", "visualize",
        "plugin evaluateAll", "evaluateAll",
    ]  # fmt: skip
    assert runner.initLog() == {"theirs": 1, "loss": []}
    assert runner.marked() == {"own": 1, "theirs": 2}
    assert runner.helper() == "own"


def test_the_init_of_a_dataset() -> None:
    class Dataset(DatasetBase):
        def init(self, args: Any) -> Any:
            return {}, [], []

    dataset: Any = Dataset()
    add_plugins(dataset, [Plugin], "dataset", reports=True)
    assert dataset.init({}) == ({}, [], []) and dataset.calls == ["plugin dataset init"]


def test_a_plugin_neither_skips_nor_decides() -> None:
    life_cycle = LifeCycleBase()
    add_plugins(life_cycle, [Plugin], "life cycle", reports=True)
    calls = LifeCycleCalls(life_cycle)
    assert calls.before("BTrain") and not calls.decide("needValidation", 0, {}, {})


def test_an_error_of_a_plugin_is_printed_once_and_the_run_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    runner: Any = Runner()
    runner.calls = []
    add_plugins(runner, [Failing], "runner", reports=True)
    for _ in range(2):
        runner.visualize(log={}, iter=0, epoch=0)
    assert runner.calls == ["visualize", "visualize"]
    assert capsys.readouterr().out == "plugin Failing: visualize failed: ValueError: no display\n"
