"""The state of a run as the objects of a project in DLNest's contract see it: their `_status`."""

from __future__ import annotations

from roost.train.distributed.ranks import ALONE, Ranks


class RunningStatus:
    """The state of a run, shared by its life cycle, dataset and runner; the loop sets ``epoch``, ``iter`` and
    ``status``.

    Args:
        device: The device of this process.
        ranks: The ranks of the run.

    Attributes:
        env: "CPU", "GPU", or "DDP" with several ranks.
        rank: The rank of this process; -1 with one process.
        worldSize: Number of processes.
        epoch: The epoch, counted from 0.
        iter: The step of the epoch, counted from 0.
        status: "Waiting", "Training", "Validating" or "Analyzing".
    """

    def __init__(self, device: str = "cpu", ranks: Ranks = ALONE) -> None:
        self.env = "DDP" if ranks.are_several else "CPU" if device.partition(":")[0] == "cpu" else "GPU"
        self.rank = ranks.rank if ranks.are_several else -1
        self.worldSize = ranks.world_size
        self.epoch = 0
        self.iter = 0
        self.status = "Waiting"

    def isTraining(self) -> bool:
        """Whether the runner trains."""
        return self.status == "Training"

    def isValidating(self) -> bool:
        """Whether the runner validates."""
        return self.status == "Validating"

    def isAnalyzing(self) -> bool:
        """Whether an analysis has loaded the project."""
        return self.status == "Analyzing"

    def isWaiting(self) -> bool:
        """Whether neither training nor validation nor analysis is in progress."""
        return self.status == "Waiting"
