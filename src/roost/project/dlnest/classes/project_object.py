"""The attributes and methods that all base classes of DLNest's contract share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from roost.project.dlnest.classes.running_status import RunningStatus
from roost.train.distributed.ranks import ALONE, Ranks


class ProcessPlace(NamedTuple):
    """The device and the ranks of the process that an object of a project belongs to."""

    device: torch.device = torch.device("cpu")
    ranks: Ranks = ALONE
    sync_batch_norm: bool = False
    """Whether batch statistics are those of all ranks, for every module."""


class ProjectObject:
    """A life cycle, dataset or runner of a project.

    Attributes:
        _args: The whole config.
        _plugins: The plugin classes.
        _status: The state of the run.
        _envType: ``_status.env``, as versions before 0.3.2 call it.
        _rank: ``_status.rank``.
        _worldSize: ``_status.worldSize``.
    """

    _args: dict[str, Any]
    _plugins: Sequence[type]
    _status: RunningStatus
    _envType: str
    _rank: int
    _worldSize: int
    _process_place: ProcessPlace = ProcessPlace()

    def _attach_alone(self, args: object, plugins: object, status: object) -> None:
        """Attaches an object that the project constructed itself, with the arguments of its constructor. They
        are those of any generation: only a config, plugins and a status are used."""
        if "_args" not in vars(self):
            attach(
                self,
                args if isinstance(args, dict) else {},
                plugins if isinstance(plugins, list | tuple) else (),
                status if isinstance(status, RunningStatus) else RunningStatus(),
            )

    def getArgs(self) -> dict[str, Any]:
        """Returns the whole config."""
        return self._args

    def getSaveDict(self) -> dict[Any, Any]:
        """Returns what a checkpoint saves of this object."""
        return {}

    def loadSaveDict(self, saveDict: dict[Any, Any]) -> None:
        """Restores what `getSaveDict` returned."""


def attach(
    target: Any,
    args: dict[str, Any],
    plugins: Sequence[type],
    status: RunningStatus,
    place: ProcessPlace = ProcessPlace(),  # noqa: B008  - immutable
) -> None:
    """Gives an object of a project what belongs to the run. Called before the object's constructor, so that
    constructors of every generation may use it, whatever they pass to the base class."""
    vars(target).update(
        _args=args,
        _plugins=plugins,
        _status=status,
        _process_place=place,
        _envType=status.env,
        _rank=status.rank,
        _worldSize=status.worldSize,
    )
