"""The check of a project in DLNest's contract: an epoch of two steps, with all that follows one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from roost.config.dlnest.dlnest_settings import parse_dlnest_settings
from roost.package.checkpoints.pickled_values import Pickles
from roost.package.checkpoints.retention import RetentionPolicy
from roost.package.package import PackageFolder
from roost.package.setting_locations import setting_locations
from roost.project.device_choice import choose_device
from roost.project.dlnest import run_state
from roost.project.dlnest.project_classes import load_classes
from roost.project.dlnest.project_loading import DlnestProject, load_project
from roost.project.dlnest.training_loop import TrainingLoop
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.distributed.ranks import ALONE
from roost.train.step import timing
from roost.worker import torch_settings
from roost.worker.check.stages import StageReporter

_STEPS = 2


def check_dlnest(package: PackageFolder, request: Mapping[str, Any], reporter: StageReporter) -> None:
    """Checks the project of a package, and reports each stage::

        imports, data, model
        epoch: two steps, the decisions, one batch of the validation, the save, AOneEpoch
        load: a new project with the state of the checkpoint

    Raises:
        RoostError: The config or the project is wrong.
        Exception: An error of the project's code.
    """
    settings = parse_dlnest_settings(package.settings, where=setting_locations(package))
    device = choose_device(str(request["device"]))
    torch_settings.apply(settings, device=device, first=None)
    load_classes(package, settings)
    project = load_project(package, settings, device=device)
    reporter.done(", ".join((settings.life_cycle_name, settings.dataset_name, settings.runner_name)))
    reporter.begin("data")
    if not project.begin():
        project.calls.after("AAll")
        reporter.done("none: BAll returned Skip")
        return
    project.build_dataset()
    project.require_dataset()
    sets = {"training": project.train_loader, "validation": project.valid_loader}
    reporter.done(", ".join(f"{name} {_size(loader)}" for name, loader in sets.items()))
    reporter.begin("model")
    project.build_runner()
    project.finish_runner()
    project.require_parts()
    modules = [one for one in vars(project.runner).values() if isinstance(one, nn.Module)]
    numbers = {id(one): one.numel() for module in modules for one in module.parameters()}
    reporter.done(f"{sum(numbers.values()):,} parameters on {device}")
    reporter.begin("epoch")
    checkpoints = Checkpoints(
        package, RetentionPolicy(fast=1), session=1, asynchronous=False, pickles=Pickles.of(trust=False)
    )
    _train_epoch(project, checkpoints)
    reporter.done(f"the log has {', '.join(map(str, project.log)) or 'nothing'}")
    manifest, states, _ = run_state.read(checkpoints, ALONE)
    assert manifest is not None  # the loop saves at its end in any case
    reporter.begin("load")
    state = run_state.project_state(states, ALONE)
    load_project(package, settings, device=device, state=state).build()
    skipped = "" if manifest.step else ": each was skipped, so runOneStep was not checked"
    reporter.done(f"the state after {manifest.step} steps{skipped}")
    reporter.record_measurements(peak_host_mb=round(timing.peak_mb(), 1))


def _train_epoch(project: DlnestProject, checkpoints: Checkpoints) -> None:
    """Trains the epoch, and asks the project as always whether another one follows."""
    whole = project.train_loader, project.valid_loader
    project.train_loader = _FirstBatches(project.train_loader, _STEPS)
    project.valid_loader = _FirstBatches(project.valid_loader, 1)
    needs_more = project.life_cycle.needContinueTrain

    def ends(*given: Any) -> bool:
        needs_more(*given)
        return False

    project.life_cycle.needContinueTrain = ends
    try:
        TrainingLoop(project, checkpoints=checkpoints, session=1).run()
    finally:
        project.train_loader, project.valid_loader = whole
        del project.life_cycle.needContinueTrain


class _FirstBatches:
    """The first batches of a loader."""

    def __init__(self, loader: Iterable[Any], number: int) -> None:
        self._loader, self._number = loader, number

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._loader), self._number)


def _size(loader: Any) -> str:
    return f"{len(loader):,} batches" if hasattr(loader, "__len__") else "batches without a known number"
