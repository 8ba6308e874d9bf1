"""Loads a project of DLNest's contract from its package, in the contract's order."""

from __future__ import annotations

import copy
import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from roost.base.errors import ContractError
from roost.config.dlnest.dlnest_settings import SECTION, DlnestSettings
from roost.package.package import PackageFolder
from roost.package.setting_locations import setting_locations
from roost.project.dlnest.classes.project_object import ProcessPlace
from roost.project.dlnest.classes.running_status import RunningStatus
from roost.project.dlnest.classes.torch_runner import RunnerBaseTorch
from roost.project.dlnest.generations import Generation, construct
from roost.project.dlnest.lifecycle_calls import LifeCycleCalls
from roost.project.dlnest.plugins.plugin_calls import add_plugins
from roost.project.dlnest.plugins.plugin_loading import load_plugins
from roost.project.dlnest.project_classes import ProjectClass, ProjectClasses, load_classes
from roost.train.accelerators.registry import accelerator_of
from roost.train.distributed.ranks import ALONE, Ranks


@dataclass
class DlnestProject:
    """A project of DLNest's contract, whose parts are built in this order:

    ```
    project = load_project(...)      # LifeCycle, its state
    if project.begin():              # BAll, the life cycle's state again
        project.build_dataset()      # BDatasetInit, Dataset, init, its state, ADatasetInit
        project.build_runner()       # BModelInit, Runner, init, DDPOperation, initOptimizer, afterDDP
        project.finish_runner()      # the runner's state and the log, or initLog; AModelInit
        project.require_parts()
        ...                          # the training
    project.calls.after("AAll")
    ```
    """

    package: PackageFolder
    settings: DlnestSettings
    device: str
    ranks: Ranks
    args: dict[str, Any]
    """The whole config, as a plain dict that the project may change."""
    status: RunningStatus
    plugins: Sequence[type]
    state: Mapping[str, Any] | None
    """What a checkpoint holds of the project, or None."""
    classes: ProjectClasses
    life_cycle: Any = None
    calls: LifeCycleCalls = field(default_factory=lambda: LifeCycleCalls(None))
    dataset: Any = None
    runner: Any = None
    info: Any = None
    """What ``Dataset.init`` returned for the runner: a dict."""
    train_loader: Any = None
    valid_loader: Any = None
    log: dict[str, Any] = field(default_factory=dict)

    def begin(self) -> bool:
        """Calls BAll, and returns False if it returned Skip: then only AAll follows.

        The life cycle's state is restored before BAll and after it: a BAll may use it, and may reset it.
        """
        if not self.calls.before("BAll"):
            return False
        if self.state is not None and "life_cycle" in self.state:
            self.life_cycle.loadSaveDict(self.state["life_cycle"])
        return True

    def build_dataset(self) -> None:
        """Builds the dataset and its loaders, unless BDatasetInit returned Skip."""
        if self.calls.before("BDatasetInit"):
            one = self.classes.dataset
            self.life_cycle.dataset = self.dataset = self._construct(one, self.args)
            is_oldest = one.generation is Generation.V02
            given = self.dataset.afterInit() if is_oldest else self.dataset.init(self.args)
            method = f"{one.found.__name__}.{'afterInit' if is_oldest else 'init'}()"
            self.info, self.train_loader, self.valid_loader = _require_three(given, method)
            if self.state is not None and "dataset" in self.state:
                self.dataset.loadSaveDict(self.state["dataset"])
        self.calls.after("ADatasetInit")

    def build_runner(self) -> None:
        """Builds the runner and its optimizers, unless BModelInit returned Skip."""
        if not self.calls.before("BModelInit"):
            return
        one = self.classes.runner
        self.life_cycle.runner = self.runner = self._construct(one, self.args, self.info)
        if one.generation is Generation.V02:
            return
        self.runner.init(self.args, self.info)
        self.runner._register_held()
        if self.ranks.are_several:
            self.runner.DDPOperation(self.ranks.rank)
        self.runner.initOptimizer()
        self.runner._register_held()
        if self.ranks.are_several:
            self.runner.afterDDP(self.ranks.rank)
            vars(self.runner)["runOneStep"] = _then(self.runner.runOneStep, self.runner._synchronize_ranks)

    def finish_runner(self) -> None:
        """Restores the runner and the log from the state, or begins a new log; then calls AModelInit."""
        if self.runner is not None:
            if self.state is None:
                self.init_log()
            else:
                self._load_runner(self.state)
        self.calls.after("AModelInit")

    def init_log(self) -> None:
        """Begins the log of a new run.

        Raises:
            ContractError: The project's log is not a dict.
        """
        log = self.runner.initLog()
        if not isinstance(log, dict):
            raise ContractError(
                f"{type(self.runner).__name__}.initLog() must return a dict",
                received=type(log).__name__,
                fix='return the log, such as {"loss": []}, or {}',
            )
        self.log = log

    def build(self) -> bool:
        """Builds everything for a training; False if BAll returned Skip.

        Raises:
            ContractError: The dataset was skipped.
        """
        if not self.begin():
            return False
        self.build_dataset()
        self.require_dataset()
        self.build_runner()
        self.finish_runner()
        return True

    def require_dataset(self) -> None:
        """Checks that a training has a dataset. Call it before `build_runner`: the runner gets the dataset's
        dict, and would fail without it.

        Raises:
            ContractError: The dataset was skipped.
        """
        if self.dataset is None:
            raise _skip_error("DatasetInit")

    def require_parts(self) -> None:
        """Checks that a training has what it needs.

        Raises:
            ContractError: The runner was skipped, or the training loader is none.
        """
        self.require_loader(self.train_loader, "training")
        if self.runner is None:
            raise _skip_error("ModelInit")

    def require_loader(self, loader: Any, purpose: Literal["training", "validation"]) -> None:
        """Checks that a loader of the dataset can be iterated.

        Raises:
            ContractError: It cannot.
        """
        # What has __getitem__ alone can be iterated, too.
        if not any(hasattr(type(loader), name) for name in ("__iter__", "__getitem__")):
            place = "second" if purpose == "training" else "third"
            raise ContractError(
                f"{type(self.dataset).__name__}.init() must return a {purpose} loader that can be iterated, "
                f"as the {place} of three",
                received=type(loader).__name__,
                fix="return a DataLoader, or any iterable of batches",
            )

    def save_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint holds of the project: of life cycle, dataset and runner by these names,
        unless one was skipped, and of the log as "log_dict".

        Raises:
            ContractError: The runner's state is none that its `loadSaveDict` could load.
        """
        parts = {"life_cycle": self.life_cycle, "dataset": self.dataset, "runner": self.runner}
        saved = {name: part.getSaveDict() for name, part in parts.items() if part is not None}
        if "runner" in saved:
            _require_loadable(self.runner, saved["runner"])
        return {**saved, "log_dict": self.log}

    def load_save_dict(self, state: Mapping[str, Any]) -> None:
        """Restores life cycle, dataset, runner and log of a built project from what `save_dict` returned, or
        from a checkpoint of DLNest's own programs."""
        if "life_cycle" in state:
            self.life_cycle.loadSaveDict(state["life_cycle"])
        if self.dataset is not None and "dataset" in state:
            self.dataset.loadSaveDict(state["dataset"])
        if self.runner is not None:
            self._load_runner(state)

    def _load_runner(self, state: Mapping[str, Any]) -> None:
        key = "runner" if "runner" in state else "model"  # its name before 0.3.2
        if key in state:
            self.runner.loadSaveDict(state[key])
        self.log = state.get("log_dict", {})

    def _construct(self, one: ProjectClass, *positional: Any) -> Any:
        """Returns an object of a class of the project, which gets ``positional`` if it is of 0.2."""
        given = {
            "args": self.args,
            "plugins": list(self.plugins),
            "status": self.status,
            "taskProcess": self,
            "_envType": self.status.env,
            "rank": self.status.rank,
            "worldSize": self.status.worldSize,
        }
        place = ProcessPlace(torch.device(self.device), self.ranks, self.settings.sync_batch_norm)
        made = construct(
            one.found,
            one.role,
            one.generation,
            place=place,
            given=given,
            positional=positional,
        )
        add_plugins(made, self.plugins, one.role.name, reports=self.ranks.is_main)
        return made


def load_project(
    package: PackageFolder,
    settings: DlnestSettings,
    *,
    device: str,
    ranks: Ranks = ALONE,
    state: Mapping[str, Any] | None = None,
    analyzing: bool = False,
) -> DlnestProject:
    """Returns a project whose life cycle exists, and nothing else yet. The working folder must be the
    package.

    Args:
        package: The package.
        settings: Its settings.
        device: The device of this process.
        ranks: The ranks of the run.
        state: What a checkpoint holds of the project, as `DlnestProject.save_dict` returned it; None for a
            new run.
        analyzing: Whether an analysis loads it.

    Raises:
        RoostError: The config, or a class of the project is wrong.
        Exception: An error of the project's code.
    """
    accelerator_of(device).set_current(torch.device(device))
    classes = load_classes(package, settings)
    if not analyzing:
        _require_trainable(classes)
    status = RunningStatus(device, ranks)
    if analyzing:
        status.status = "Analyzing"
    args, where = project_args(package), setting_locations(package)
    plugins = load_plugins(settings.plugins, package, where)
    project = DlnestProject(package, settings, device, ranks, args, status, plugins, state, classes)
    made = project._construct(classes.life_cycle, None, None, project, None)
    project.life_cycle, project.calls = made, LifeCycleCalls(made, ranks)
    if state is not None and "life_cycle" in state:
        # A copy: BAll may change what it was given, and the state is loaded again after it.
        made.loadSaveDict(copy.deepcopy(state["life_cycle"]))
    return project


def project_args(package: PackageFolder) -> dict[str, Any]:
    """Returns the config as the project gets it: a plain dict with the package as ``root_file_path``, an
    absolute ``save_root``, and without roost's own section."""
    args: dict[str, Any] = json.loads(json.dumps(package.settings))
    args.pop(SECTION, None)
    folder: Path = package.path.absolute()
    return {**args, "root_file_path": str(folder), "save_root": str(folder.parent)}


def _require_trainable(classes: ProjectClasses) -> None:
    for one in classes:
        if one.generation is Generation.V02:
            raise ContractError(
                f"the {one.role.name} {one.found.__name__} is of 0.2, which can be analysed but not trained",
                received=f"{one.found.__name__}{inspect.signature(one.found)}",
                where=one.where,
                fix=f"take {one.role.expected}; or write no __init__, and use init()",
            )


def _require_loadable(runner: Any, saved: object) -> None:
    """Checks the state of a runner that saves in its own way and loads in roost's: without a dict, no
    checkpoint of the run could be loaded."""
    inherits = getattr(type(runner), "loadSaveDict", None) is RunnerBaseTorch.loadSaveDict
    if inherits and not isinstance(saved, Mapping):
        raise ContractError(
            f"{type(runner).__name__}.getSaveDict() must return a dict, as its loadSaveDict() is that of "
            "RunnerBaseTorch",
            received=type(saved).__name__,
            fix="return super().getSaveDict() with your own keys, or write loadSaveDict(), too",
        )


def _skip_error(name: str) -> ContractError:
    return ContractError(
        f'B{name} returned "Skip", so there is nothing to train',
        fix=f"return Skip from BAll or BTrain, too, or nothing from B{name}",
    )


def _then(step: Callable[..., Any], last: Callable[[], None]) -> Callable[..., None]:
    @functools.wraps(step)
    def both(*given: Any, **named: Any) -> None:
        step(*given, **named)
        last()

    return both


def _require_three(found: Any, by: str) -> tuple[Any, Any, Any]:
    if not isinstance(found, tuple | list) or len(found) != 3:
        raise ContractError(
            f"{by} must return a dict for the runner, a training loader and a validation loader",
            received=type(found).__name__ if not isinstance(found, tuple | list) else f"{len(found)} values",
            fix="return info, train_loader, valid_loader",
        )
    return found[0], found[1], found[2]
