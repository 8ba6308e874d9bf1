"""Loads a project of DLNest's contract with what a checkpoint holds of it, for analysis."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roost.base.errors import CheckpointError, ContractError, NotFound
from roost.config.dlnest.dlnest_settings import parse_dlnest_settings
from roost.package.checkpoints import checkpoint as checkpoints
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.pickled_values import Pickles
from roost.package.dlnest import original_checkpoint
from roost.package.dlnest.original_package import OriginalPackage
from roost.package.package import PackageFolder
from roost.package.setting_locations import setting_locations
from roost.project.device_choice import choose_device
from roost.project.dlnest.project_classes import load_classes
from roost.project.dlnest.project_loading import DlnestProject, load_project
from roost.project.dlnest.run_state import PROJECT


@dataclass(frozen=True)
class TrainedProject:
    """A project as a checkpoint left it."""

    project: DlnestProject
    log: dict[str, Any]
    """The log of the checkpoint; untrained: a new one."""
    checkpoint: Manifest | None
    """None: untrained."""
    notes: list[str]
    """A line for each damaged checkpoint that was skipped."""


def load_trained(
    package: PackageFolder,
    *,
    checkpoint: int | None = None,
    untrained: bool = False,
    device: str = "auto",
    info: Mapping[str, Any] | None = None,
    trust: bool = False,
) -> TrainedProject:
    """Builds life cycle, dataset and runner in the contract's order, from ``BAll`` to ``AModelInit``, with
    the state of one checkpoint. Call it within `package_code`, or in a process of its own. It takes no lock.

    Args:
        package: The package.
        checkpoint: The id of the checkpoint; None: the newest undamaged one of the run's lineage.
        untrained: Loads no checkpoint.
        device: auto, cpu, cuda, cuda:1, …
        info: What the runner gets of the dataset, which is then not built.
        trust: Reads pickles of the checkpoint that are not signed with the key of this user.

    Raises:
        NotFound: There is no such checkpoint, or none at all.
        CheckpointError: The checkpoint is damaged, or all are, or it does not fit the runner.
        RoostError: The config, or a class of the project is wrong.
        Exception: An error of the project's code.
    """
    chosen, where = choose_device(device), setting_locations(package)
    settings = parse_dlnest_settings(package.settings, where=where)
    load_classes(package, settings)  # before the state is read, which may have pickled objects of them
    found, state, notes = (None, None, []) if untrained else _read(package, checkpoint, trust=trust)
    project = load_project(package, settings, device=chosen, state=state, analyzing=True)
    if not project.begin():
        raise ContractError(
            'BAll returned "Skip", so there is nothing to analyse',
            fix="return Skip only where self._status.isAnalyzing() is False",
        )
    if info is None:
        project.build_dataset()
    else:
        project.info = dict(info)
    project.build_runner()
    project.finish_runner()
    log = project.log if state is None else state.get("log_dict", {})
    return TrainedProject(project, log, found, notes)


def _read(
    package: PackageFolder, id: int | None, *, trust: bool
) -> tuple[Manifest, dict[str, Any], list[str]]:
    if isinstance(package, OriginalPackage):
        return _read_original(package, id, trust=trust)
    read = functools.partial(checkpoints.read, only=[PROJECT], pickles=Pickles.of(trust=trust))
    store = package.store()
    found, notes = (read(store.path(id)), []) if id is not None else store.newest_readable(read)
    if found is None:
        raise NotFound(
            "the package has no checkpoint yet",
            where=package.path,
            fix="wait for its first one, or analyse the untrained model",
        )
    return found[0], found[1][PROJECT], notes


def _read_original(
    package: OriginalPackage, id: int | None, *, trust: bool
) -> tuple[Manifest, dict[str, Any], list[str]]:
    number, path = package.file(id)
    found = original_checkpoint.read(number, path, trust=trust)
    if found.not_read:
        raise CheckpointError(
            f"{path.name} has Python objects in its pickle, of {', '.join(found.not_read)}: reading them may "
            "run any code",
            where=package.path,
            fix="if you trust the origin of the package, add --trust",
        )
    return found.info, found.state, []
