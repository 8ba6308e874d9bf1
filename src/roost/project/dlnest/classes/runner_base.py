"""The base class of a project's runner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.base.errors import ContractError
from roost.project.dlnest.classes.project_object import ProjectObject


class RunnerBase(ProjectObject):
    """Trains and validates, one batch at a time. A project that defines ``validate(loader, log)`` validates
    by it, in place of the three methods for a validation."""

    def __init__(
        self, args: Any = None, plugins: Sequence[type] = (), status: Any = None, **named: Any
    ) -> None:
        self._attach_alone(args, plugins, status)

    def init(self, args: dict[str, Any], datasetInfo: dict[str, Any] | None = None) -> None:
        """Builds the model from the config and the dataset's dict."""

    def DDPOperation(self, rank: int) -> None:
        """Called after `init` with several ranks."""

    def initOptimizer(self) -> None:
        """Builds the optimizers and learning-rate schedulers."""

    def afterDDP(self, rank: int) -> None:
        """Called after `initOptimizer` with several ranks."""

    def initLog(self) -> dict[str, Any]:
        """Returns the log of a new run, which every later method gets."""
        return {}

    def runOneStep(self, data: Any, log: dict[str, Any], iter: int, epoch: int) -> None:
        """Trains on one batch.

        Raises:
            ContractError: The project does not define it.
        """
        raise ContractError(
            f"{type(self).__name__} has no runOneStep()",
            fix="write `def runOneStep(self, data, log, iter, epoch)` that trains on one batch",
        )

    def visualize(self, log: dict[str, Any], iter: int, epoch: int) -> None:
        """Shows what a person wants to see after this step."""

    def validationInit(self) -> None:
        """Begins a validation."""

    def validateABatch(self, data: Any, iter: int) -> None:
        """Validates one batch."""

    def validationAnalyze(self, log: dict[str, Any]) -> None:
        """Ends a validation: puts its results into the log."""

    def _register_held(self) -> None:
        """Called after `init` and after `initOptimizer`: registers what was put into lists and dicts."""

    def _synchronize_ranks(self) -> None:
        """Called after each step with several ranks: makes their buffers equal."""


ModelBase = RunnerBase
"""The name before 0.3.2."""
