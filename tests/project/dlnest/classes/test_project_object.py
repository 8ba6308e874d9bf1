from __future__ import annotations

from typing import Any

from roost.project.dlnest.classes.dataset_base import DatasetBase
from roost.project.dlnest.classes.life_cycle import LifeCycleBase
from roost.project.dlnest.classes.project_object import attach
from roost.project.dlnest.classes.runner_base import RunnerBase
from roost.project.dlnest.classes.running_status import RunningStatus
from roost.train.distributed.ranks import Ranks


class Older(RunnerBase):
    """A constructor of 0.3.0, which uses what the base class set."""

    def __init__(self, _envType: str, rank: int = -1, worldSize: int = -1) -> None:
        super().__init__(_envType, rank, worldSize)  # type: ignore[arg-type]
        self.seen = (self._envType, self._rank, self._worldSize)
        self._rank = 5  # the project's own from now on


def test_constructors_of_other_generations_do_not_disturb_what_was_attached() -> None:
    made: Any = object.__new__(Older)
    args, status = {"a": 1}, RunningStatus("cpu", Ranks(rank=1, world_size=3))
    attach(made, args, [], status)
    made.__init__("DDP", 1, 3)
    assert made.seen == ("DDP", 1, 3) and made._rank == 5
    assert made.getArgs() is args and made._status is status


def test_objects_that_a_project_constructs_itself() -> None:
    args, status = {"a": 1}, RunningStatus()
    runner = RunnerBase(args=args, plugins=[int], status=status)
    assert (runner.getArgs(), runner._plugins, runner._status) == (args, [int], status)
    dataset = DatasetBase(args)
    assert dataset.getArgs() is args and dataset._status.env == "CPU"
    assert (dataset.getSaveDict(), dataset.getSampler([1])) == ({}, None)  # type: ignore[arg-type]
    dataset.loadSaveDict({})
    life_cycle = LifeCycleBase(model=runner, rank=3)
    assert life_cycle.runner is life_cycle.model is runner
    assert life_cycle.rank == -1
