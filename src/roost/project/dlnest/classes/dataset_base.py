"""The base class of a project's dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler

from roost.base.errors import ContractError
from roost.project.dlnest.classes.project_object import ProjectObject


class DatasetBase(ProjectObject):
    """Builds the loaders of a run."""

    def __init__(
        self, args: Any = None, plugins: Sequence[type] = (), status: Any = None, **named: Any
    ) -> None:
        self._attach_alone(args, plugins, status)

    def init(self, args: dict[str, Any]) -> tuple[dict[str, Any], Iterable[Any], Iterable[Any]]:
        """Returns the dict for the runner's `init`, the batches of an epoch, and those of a validation.

        Raises:
            ContractError: The project does not define it.
        """
        raise ContractError(
            f"{type(self).__name__} has no init()",
            fix="write `def init(self, args)` that returns a dict for the runner, a training loader and a "
            "validation loader",
        )

    def getSampler(self, dataset: Dataset[Any]) -> DistributedSampler[Any] | None:
        """Returns the sampler by which the ranks share a dataset; None with one process."""
        ranks = self._process_place.ranks
        if not ranks.are_several:
            return None
        return DistributedSampler(dataset, num_replicas=ranks.world_size, rank=ranks.rank)
