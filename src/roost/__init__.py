"""roost trains PyTorch models on whatever machine a person has, and never loses a run.

Names are loaded when they are first used (PEP 562), so that `import roost` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from roost.base import former_names

if TYPE_CHECKING:
    from roost.analysis.notebook_analysis import analyze as analyze
    from roost.base.errors import RoostError as RoostError
    from roost.evaluation.evaluation_data import EvaluationData as EvaluationData
    from roost.notebook.magic import load_ipython_extension as load_ipython_extension
    from roost.operations.python_api.package_api import Package as Package
    from roost.operations.python_api.package_api import open_package as open_package
    from roost.operations.python_api.run_collection import runs as runs
    from roost.operations.python_api.script_run import ScriptRun as ScriptRun
    from roost.operations.python_api.script_run import init as init
    from roost.project.contract import Data as Data
    from roost.project.contract import Dataset as Dataset
    from roost.project.contract import Runner as Runner
    from roost.project.download import download as download
    from roost.train.checkpointing.checkpoints import Checkpoints as Checkpoints
    from roost.train.data.arrays import Arrays as Arrays
    from roost.train.data.batch_function import Sampled as Sampled
    from roost.train.data.loader import Loader as Loader
    from roost.train.data.plans.batch_plan import BatchPlan as BatchPlan
    from roost.train.events import Events as Events
    from roost.train.hook import Hook as Hook
    from roost.train.hook import Phase as Phase
    from roost.train.optim.optimizer import Optim as Optim
    from roost.train.progress import Progress as Progress
    from roost.train.reporting.media_files import Media as Media
    from roost.train.step.stepper import Stepper as Stepper
    from roost.train.trainer import Trainer as Trainer

__version__ = "0.1.0"

_HOME = {
    "analyze": "roost.analysis.notebook_analysis",
    "ScriptRun": "roost.operations.python_api.script_run",
    "init": "roost.operations.python_api.script_run",
    "runs": "roost.operations.python_api.run_collection",
    "Package": "roost.operations.python_api.package_api",
    "open_package": "roost.operations.python_api.package_api",
    "Data": "roost.project.contract",
    "EvaluationData": "roost.evaluation.evaluation_data",
    "Dataset": "roost.project.contract",
    "Media": "roost.train.reporting.media_files",
    "Runner": "roost.project.contract",
    "RoostError": "roost.base.errors",
    "load_ipython_extension": "roost.notebook.magic",
    "download": "roost.project.download",
    "Arrays": "roost.train.data.arrays",
    "Checkpoints": "roost.train.checkpointing.checkpoints",
    "Events": "roost.train.events",
    "Hook": "roost.train.hook",
    "Phase": "roost.train.hook",
    "Loader": "roost.train.data.loader",
    "Optim": "roost.train.optim.optimizer",
    "BatchPlan": "roost.train.data.plans.batch_plan",
    "Sampled": "roost.train.data.batch_function",
    "Progress": "roost.train.progress",
    "Stepper": "roost.train.step.stepper",
    "Trainer": "roost.train.trainer",
}

former_names.install()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'roost' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])
