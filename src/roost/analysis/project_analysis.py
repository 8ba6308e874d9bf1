"""`ProjectAnalysis`: the argument ``self`` of a script on a package of DLNest's contract."""

from __future__ import annotations

from typing import Any

import torch

from roost.analysis.analysis_session import AnalyzedPackage
from roost.package.package import PackageFolder
from roost.project.dlnest.trained_project import TrainedProject


class ProjectAnalysis(AnalyzedPackage):
    """A project of DLNest's contract, as a checkpoint left it.

    ```
    # AnalyzeScripts/getAcc.py: roost analyze Saves/NAME -s getAcc
    def experience(self):
        self.runner.validationInit()
        ...
        return {"accuracy": self.log["acc"][-1]}
    ```

    The runner is not put into evaluation mode: as in training, that is the project's own decision.

    Attributes:
        args: The whole config.
        runner: The project's runner, on `device`, with the state of `checkpoint`.
        model: The same object, by its former name.
        dataset: The project's dataset.
        log: The log of the checkpoint, as the project wrote it.
        package: The package. Its training may still run: only read.
        checkpoint: The checkpoint that was loaded (id, step, epoch); None if untrained.
        device: The device of the runner.
    """

    def __init__(self, package: PackageFolder, loaded: TrainedProject) -> None:
        project = loaded.project
        super().__init__(
            package,
            checkpoint=loaded.checkpoint,
            device=torch.device(project.device),
            seed=project.settings.seed,
        )
        self.args: dict[str, Any] = project.args
        self.runner: Any = project.runner
        self.model: Any = project.runner
        self.dataset: Any = project.dataset
        self.log: dict[str, Any] = loaded.log
        self._project = project

    def _end(self) -> None:
        self._project.calls.after("AAll")
