from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from roost.base.errors import ConfigError, ContractError
from roost.config import objects
from roost.train.distributed.ranks import Ranks
from tests.messages import Messages
from tests.project.dlnest.projects import NET, RUNNER, load, package
from tests.train.parts import bits
from tests.train.team import team

RECORDING = """
from DLNest.Common.LifeCycleBase import LifeCycleBase

PARTS = ["All", "DatasetInit", "ModelInit"]

class LifeCycle(LifeCycleBase):
    skipped = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = self._args.setdefault("calls", [])
        self.best = -1

    def note(self, name):
        self.calls.append(name)
        return "Skip" if name == self._args.get("skip") else None

    def BAll(self):
        self.calls.append(f"best {self.best}")
        self.best = -1
        return self.note("BAll")

    def getSaveDict(self): return {"best": self.best, "history": [1]}
    def loadSaveDict(self, saveDict):
        self.calls.append("LifeCycle.loadSaveDict")
        self.best = saveDict["best"]

def noting(name):
    return lambda self: self.note(name)

for letter in "BA":
    for part in PARTS:
        if letter + part != "BAll":
            setattr(LifeCycle, letter + part, noting(letter + part))
"""

RECORDING_DATASET = """
from DLNest.Common.DatasetBase import DatasetBase

class Dataset(DatasetBase):
    def init(self, args):
        args["calls"].append("Dataset.init")
        return {"classes": 2}, [1], [2]
    def loadSaveDict(self, saveDict): self._args["calls"].append("Dataset.loadSaveDict")
    def getSaveDict(self): return {"place": 1}
"""

RECORDING_RUNNER = """
from DLNest.Common.RunnerBase import RunnerBase

class Runner(RunnerBase):
    def init(self, args, datasetInfo=None): args["calls"].append(f"Runner.init {datasetInfo}")
    def initOptimizer(self): self._args["calls"].append("initOptimizer")
    def DDPOperation(self, rank): self._args["calls"].append("DDPOperation")
    def afterDDP(self, rank): self._args["calls"].append("afterDDP")
    def initLog(self):
        self._args["calls"].append("initLog")
        return {"loss": []}
    def loadSaveDict(self, saveDict): self._args["calls"].append(f"Runner.loadSaveDict {saveDict}")
    def getSaveDict(self): return {"weight": 1}
"""

RECORDED = {
    "LifeCycle.py": RECORDING,
    "Dataset/Dataset.py": RECORDING_DATASET,
    "Model/Runner.py": RECORDING_RUNNER,
}


def test_builds_a_project(tmp_path: Path) -> None:
    project = load(package(tmp_path))
    assert project.build()
    project.require_parts()
    assert project.info == {"classes": 2}
    assert project.log == {"loss": [], "acc": []}
    assert len(project.train_loader) == 4
    assert project.life_cycle.runner is project.life_cycle.model is project.runner
    assert project.life_cycle.dataset is project.dataset


def test_the_config_is_a_plain_dict_of_the_user(tmp_path: Path) -> None:
    made = package(tmp_path, roost={"seed": 3}, devices=[1], hooks={}, precision="high")
    project = load(made)
    assert type(project.args) is dict and type(project.args["dataset_config"]) is dict
    assert project.args["dataset_config"]["root"] == "${HOME}/data"
    assert (project.args["devices"], project.args["hooks"], project.args["precision"]) == ([1], {}, "high")
    assert "roost" not in project.args
    assert project.args["root_file_path"] == str(made.path)
    assert project.args["save_root"] == str(made.path.parent)
    project.args["dataset_config"]["batch_size"] = 10
    project.build()
    assert len(project.train_loader) == 2


def test_a_new_run_is_built_in_the_order_of_its_readme(tmp_path: Path) -> None:
    project = load(package(tmp_path, RECORDED))
    assert project.build()
    assert project.args["calls"] == [
        "best -1", "BAll",
        "BDatasetInit", "Dataset.init", "ADatasetInit",
        "BModelInit", "Runner.init {'classes': 2}", "initOptimizer", "initLog", "AModelInit",
    ]  # fmt: skip
    assert project.save_dict() == {
        "life_cycle": {"best": -1, "history": [1]},
        "dataset": {"place": 1},
        "runner": {"weight": 1},
        "log_dict": {"loss": []},
    }


def test_a_life_cycle_gets_its_state_before_BAll_and_after_it(tmp_path: Path) -> None:
    """A BAll that uses the state finds it, and one that resets it does not lose it."""
    made = package(tmp_path, RECORDED)
    state = {
        "life_cycle": {"best": 6},
        "dataset": {"place": 1},
        "runner": {"weight": 2},
        "log_dict": {"a": [1]},
    }
    project = load(made, state=state)
    assert project.build()
    assert project.args["calls"] == [
        "LifeCycle.loadSaveDict", "best 6", "BAll", "LifeCycle.loadSaveDict",
        "BDatasetInit", "Dataset.init", "Dataset.loadSaveDict", "ADatasetInit",
        "BModelInit", "Runner.init {'classes': 2}", "initOptimizer", "Runner.loadSaveDict {'weight': 2}",
        "AModelInit",
    ]  # fmt: skip
    assert project.life_cycle.best == 6
    assert project.log == {"a": [1]}


def test_what_BAll_changes_in_a_restored_state_is_not_in_it_the_second_time(tmp_path: Path) -> None:
    code = """
from DLNest.Common.LifeCycleBase import LifeCycleBase
class LifeCycle(LifeCycleBase):
    def BAll(self): self.history.append("BAll")
    def loadSaveDict(self, saveDict): self.history = saveDict["history"]
"""
    project = load(package(tmp_path, {"LifeCycle.py": code}), state={"life_cycle": {"history": ["saved"]}})
    project.begin()
    assert project.life_cycle.history == ["saved"]


def test_the_key_of_older_checkpoints_for_the_runner(tmp_path: Path) -> None:
    project = load(package(tmp_path, RECORDED), state={"model": {"weight": 3}, "log_dict": {}})
    project.begin()
    project.args["calls"].clear()
    project.build_runner()
    project.finish_runner()
    assert "Runner.loadSaveDict {'weight': 3}" in project.args["calls"]


def test_skip_of_everything(tmp_path: Path) -> None:
    project = load(package(tmp_path, RECORDED, skip="BAll"))
    assert not project.build()
    assert project.args["calls"] == ["best -1", "BAll"]


@pytest.mark.parametrize(("skip", "left_out"), [("BDatasetInit", "Dataset"), ("BModelInit", "Runner")])
def test_skip_of_a_part_that_the_training_needs(
    tmp_path: Path, skip: str, left_out: str, messages: Messages
) -> None:
    project = load(package(tmp_path, RECORDED, skip=skip))
    with pytest.raises(ContractError) as refused:
        project.build()
        project.require_parts()
    messages.check(refused.value)
    assert skip.replace("B", "A", 1) in project.args["calls"]
    assert not any(one.startswith(f"{left_out}.init") for one in project.args["calls"])


def test_a_skipped_dataset_is_named_before_the_runner_misses_it(tmp_path: Path) -> None:
    life = """
from DLNest.Common.LifeCycleBase import LifeCycleBase
class LifeCycle(LifeCycleBase):
    def BDatasetInit(self):
        return "Skip"
"""
    project = load(package(tmp_path, {"LifeCycle.py": life}))  # its runner reads datasetInfo["classes"]
    with pytest.raises(ContractError, match='BDatasetInit returned "Skip"'):
        project.build()


OLDER_RUNNER = """
import torch
from torch import nn
from DLNest.Common.ModelBaseTorch import ModelBaseTorch

class Model(ModelBaseTorch):
    def __init__(self, _envType, rank=-1, worldSize=-1):
        super(Model, self).__init__(_envType=_envType, rank=rank, worldSize=worldSize)
        self.seen = (self._envType, self._rank, self._worldSize)

    def init(self, args, datasetInfo=None):
        self.net = self.register(nn.Linear(4, 2))
"""
OLDER_DATASET = """
from DLNest.Common.DatasetBase import DatasetBase

class Dataset(DatasetBase):
    def __init__(self, _envType):
        super().__init__(_envType)
        self.seen = self._envType

    def init(self, args):
        return {}, [], []
"""
OLDER_LIFE_CYCLE = """
from DLNest.Common.LifeCycleBase import LifeCycleBase

class LifeCycle(LifeCycleBase):
    def __init__(self, model=None, dataset=None, taskProcess=None, rank=-1):
        super(LifeCycle, self).__init__(model, dataset, taskProcess, rank)
        self.rank = rank

    def AModelInit(self):
        self.seen = self.model.net
"""


def test_a_project_of_0_3_0(tmp_path: Path) -> None:
    files = {
        "Model/Runner.py": OLDER_RUNNER,
        "Dataset/Dataset.py": OLDER_DATASET,
        "LifeCycle.py": OLDER_LIFE_CYCLE,
    }
    made = package(
        tmp_path,
        files,
        runner_name=None,
        runner_file_path=None,
        model_name="Model",
        model_file_path="./Model/Runner.py",
    )
    project = load(made)
    assert project.build()
    assert project.runner.seen == ("CPU", -1, 1)
    assert project.dataset.seen == "CPU"
    assert project.life_cycle.seen is project.runner.net
    assert list(project.runner.getSaveDict()) == [0, "optimizer", "scheduler"]


OLDEST = {
    "Model/Runner.py": """
from torch import nn
from DLNest.Common.ModelBase import ModelBase
class Runner(ModelBase):
    def __init__(self, args, datasetInfo):
        self.args, self.info, self.net = args, datasetInfo, nn.Linear(2, 2)
""",
    "Dataset/Dataset.py": """
from DLNest.Common.DatasetBase import DatasetBase
class Dataset(DatasetBase):
    def __init__(self, args): self.args = args
    def afterInit(self): return {"classes": 2}, [1], [2]
""",
    "LifeCycle.py": """
from DLNest.Common.LifeCycleBase import LifeCycleBase
class LifeCycle(LifeCycleBase):
    def __init__(self, model, dataset, trainProcess, analyzeProcess): self.process = trainProcess
""",
}


def test_a_project_of_0_2_is_analysed(tmp_path: Path) -> None:
    project = load(package(tmp_path, OLDEST), analyzing=True)
    assert project.build()
    assert project.runner.info == {"classes": 2} and project.train_loader == [1]
    assert project.status.isAnalyzing()


def test_a_project_of_0_2_is_not_trained(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ContractError) as refused:
        load(package(tmp_path, OLDEST))
    messages.check(refused.value)


def test_classes_that_are_none_of_the_contract(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ContractError) as refused:
        load(package(tmp_path, {"LifeCycle.py": "class LifeCycle: pass"}))
    messages.check(refused.value)
    with pytest.raises(ContractError) as refused:
        load(package(tmp_path / "b", {"LifeCycle.py": "class LiveCycle: pass"}))
    messages.check(refused.value)
    with pytest.raises(ConfigError) as missing:
        load(package(tmp_path / "c", life_cycle_file_path="./Other.py"))
    assert missing.value.setting == "life_cycle_file_path"
    messages.check(missing.value)


def test_a_dataset_that_does_not_return_three(tmp_path: Path, messages: Messages) -> None:
    code = "from DLNest.Common.DatasetBase import DatasetBase\nclass Dataset(DatasetBase):\n"
    project = load(
        package(tmp_path, {"Dataset/Dataset.py": f"{code}    def init(self, args): return {{}}, []"})
    )
    with pytest.raises(ContractError) as refused:
        project.build()
    messages.check(refused.value)


@pytest.mark.parametrize("loader", ["None", "5"])
def test_a_training_loader_that_is_none(tmp_path: Path, loader: str) -> None:
    code = "from DLNest.Common.DatasetBase import DatasetBase\nclass Dataset(DatasetBase):\n"
    own = f"{code}    def init(self, args): return {{'classes': 2}}, {loader}, []"
    project = load(package(tmp_path, {"Dataset/Dataset.py": own}))
    assert project.build()  # an analysis need not have one
    with pytest.raises(ContractError, match=r"Dataset.init\(\) must return a training loader"):
        project.require_parts()


@pytest.mark.parametrize("log", ["None", "[1]"])
def test_a_log_that_is_no_dict(tmp_path: Path, log: str, messages: Messages) -> None:
    changed = RUNNER.replace('return {"loss": [], "acc": []}', f"return {log}")
    project = load(package(tmp_path, {"Model/Runner.py": changed}))
    with pytest.raises(ContractError, match=r"Runner.initLog\(\) must return a dict") as refused:
        project.build()
    messages.check(refused.value)


def test_a_state_that_could_not_be_loaded_is_not_saved(tmp_path: Path, messages: Messages) -> None:
    own = f"{RUNNER}\n    def getSaveDict(self):\n        super().getSaveDict()\n"
    project = load(package(tmp_path, {"Model/Runner.py": own}))
    assert project.build()
    with pytest.raises(ContractError, match="must return a dict") as refused:
        project.save_dict()
    messages.check(refused.value)
    both = f"{own}\n    def loadSaveDict(self, saveDict):\n        assert saveDict is None\n"
    project = load(package(tmp_path / "b", {"Model/Runner.py": both}))
    assert project.build()
    assert project.save_dict()["runner"] is None


def test_an_error_of_the_projects_code_is_the_projects(tmp_path: Path) -> None:
    made = package(tmp_path, {"Model/Runner.py": RUNNER.replace("from Net", "from Nett")})
    with pytest.raises(ModuleNotFoundError, match="Nett"):
        load(made)
    assert "Model.Runner" not in sys.modules


def test_the_seed_of_a_run_makes_its_weights(tmp_path: Path) -> None:
    found = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        project = load(package(tmp_path / name, roost={"seed": seed}))
        project.build()
        found.append(project.runner.model.layer.weight.tolist())
        objects.unload_project(tmp_path / name)
    assert found[0] == found[1] != found[2]


def test_ranks_are_built_and_stay_equal(tmp_path: Path) -> None:
    """The methods for several ranks are called, as is the average."""
    runner = (
        RUNNER.replace("nn.CrossEntropyLoss()", "nn.CrossEntropyLoss()\n        self.order = []")
        + """
    def DDPOperation(self, rank): self.order.append(f"DDPOperation {rank}")
    def afterDDP(self, rank): self.order.append(f"afterDDP {rank}")
"""
    )
    net = NET.replace("self.layer(x)", "self.norm(self.layer(x))").replace(
        "super().__init__()", "super().__init__()\n        self.norm = nn.BatchNorm1d(outputs)"
    )
    made = package(tmp_path, {"Model/Runner.py": runner, "Model/Net.py": net})

    def work(ranks: Ranks) -> Any:
        project = load(made, ranks=ranks)
        project.build()
        loader = DataLoader(
            project.train_loader.dataset, 5, sampler=project.dataset.getSampler(project.train_loader.dataset)
        )
        for number, batch in enumerate(loader):
            project.runner.runOneStep(batch, project.log, number, 0)
        state = project.runner.getSaveDict()
        return list(state[0].values()), project.log["loss"], project.runner.order, len(loader)

    first, second = team(2, work)
    assert bits(first[0]) == bits(second[0])
    assert first[1] == second[1] and first[3] == 2
    assert (first[2], second[2]) == (["DDPOperation 0", "afterDDP 0"], ["DDPOperation 1", "afterDDP 1"])
