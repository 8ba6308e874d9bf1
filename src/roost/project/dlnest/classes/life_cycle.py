"""The base class of a life cycle: decisions, and methods before and after each part of a run."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from roost.project.dlnest.classes.project_object import ProjectObject


class LifeCycleBase(ProjectObject):
    """Decides when a run validates, saves and ends. Before each part of a run its method ``B<part>`` is
    called, which may return "Skip" to leave the part out, and after it ``A<part>``.

    Attributes:
        runner: The runner, once it is built; ``model`` before 0.3.2.
        dataset: The dataset, once it is built.
        taskProcess: The loaded project.
    """

    def __init__(
        self,
        runner: Any = None,
        dataset: Any = None,
        taskProcess: Any = None,
        plugins: Sequence[type] = (),
        status: Any = None,
        **named: Any,
    ) -> None:
        self._attach_alone(getattr(taskProcess, "args", {}), plugins, status)
        runner = named.get("model") if runner is None else runner
        for name, value in {"runner": runner, "dataset": dataset, "taskProcess": taskProcess}.items():
            vars(self).setdefault(name, value)

    @property
    def model(self) -> Any:
        """The runner, as versions before 0.3.2 call it."""
        return self.runner

    @model.setter
    def model(self, runner: Any) -> None:
        self.runner = runner

    @property
    def rank(self) -> int:
        """The rank of this process; -1 with one process."""
        return self._rank

    @rank.setter
    def rank(self, rank: int) -> None:
        self._rank = rank

    # ---- decisions --------------------------------------------------------------------------------------

    def needVisualize(self, epoch: int, iter: int, logdict: dict[str, Any], args: dict[str, Any]) -> bool:
        """Whether to call the runner's `visualize` after this step."""
        return False

    def needValidation(self, epoch: int, logdict: dict[str, Any], args: dict[str, Any]) -> bool:
        """Whether to validate after this epoch."""
        return False

    def commandLineOutput(self, epoch: int, logdict: dict[str, Any], args: dict[str, Any]) -> None:
        """Prints what a person wants to read after each epoch."""

    def needSaveModel(self, epoch: int, logdict: dict[str, Any], args: dict[str, Any]) -> bool:
        """Whether to save a checkpoint after this epoch."""
        return True

    def holdThisCheckpoint(self, epoch: int, logdict: dict[str, Any], args: dict[str, Any]) -> bool:
        """Whether the checkpoint belongs to the consistent track."""
        return False

    def needContinueTrain(self, epoch: int, logdict: dict[str, Any], args: dict[str, Any]) -> bool:
        """Whether another epoch follows."""
        return False

    def trainAborting(self, exception: BaseException) -> None:
        """Called when the training ends by an error, with the error."""
        traceback.print_exception(exception)

    # ---- before and after each part ---------------------------------------------------------------------

    def BAll(self) -> str | None:
        """Before everything; Skip: nothing but `AAll` follows."""

    def AAll(self) -> None:
        """After everything."""

    def BDatasetInit(self) -> str | None:
        """Before the dataset is built."""

    def ADatasetInit(self) -> None:
        """After the dataset was built."""

    def BModelInit(self) -> str | None:
        """Before the runner is built."""

    def AModelInit(self) -> None:
        """After the runner was built, and its state restored."""

    def BTrain(self) -> str | None:
        """Before the training."""

    def ATrain(self) -> None:
        """After the training."""

    def BOneEpoch(self) -> str | None:
        """Before each epoch; Skip: neither training nor validation nor saving."""

    def AOneEpoch(self) -> None:
        """After each epoch."""

    def BModelOneStep(self) -> str | None:
        """Before each step."""

    def AModelOneStep(self) -> None:
        """After each step."""

    def BVisualize(self) -> str | None:
        """Before the runner's `visualize`."""

    def AVisualize(self) -> None:
        """After the runner's `visualize`."""

    def BValidation(self) -> str | None:
        """Before each validation."""

    def AValidation(self) -> None:
        """After each validation."""

    def BValidateABatch(self) -> str | None:
        """Before each batch of a validation."""

    def AValidateABatch(self) -> None:
        """After each batch of a validation."""

    def BValidationAnalyze(self) -> str | None:
        """Before the runner's `validationAnalyze`."""

    def AValidationAnalyze(self) -> None:
        """After the runner's `validationAnalyze`."""

    def BSaveModel(self) -> str | None:
        """After each epoch, before `needSaveModel`."""

    def ASaveModel(self) -> None:
        """After each epoch, once the checkpoint is committed if one is due."""
