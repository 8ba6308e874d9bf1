"""A package's Runner and data, built by its own code, with the weights of one checkpoint, for analysis."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from roost.base.errors import NotFound
from roost.config.settings import Settings
from roost.package.checkpoints import checkpoint as checkpoints
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.pickled_values import Pickles
from roost.package.package import PackageFolder
from roost.package.project_preflight import require_runner
from roost.package.setting_locations import setting_locations
from roost.project import native_project
from roost.project.contract import Data, Dataset, Runner
from roost.project.device_choice import choose_device
from roost.project.staging.package_archives import NO_ARCHIVES
from roost.train.model.module_state import ModuleState

_PART = "model"
"""The part of a trainer's checkpoint that holds the Runner."""


@dataclass(frozen=True)
class LoadedExperiment:
    """A package's Runner and data. ``dataset`` and ``data`` are None where ``info`` was given instead."""

    args: dict[str, Any]
    """All settings, paths and variables filled in."""
    settings: Settings
    runner: Runner
    """In evaluation mode, on the device that was asked for."""
    dataset: Dataset | None
    data: Data | None
    checkpoint: Manifest | None
    """The checkpoint of the weights; None: untrained."""
    notes: list[str]
    """Warnings for the user: a line for each damaged checkpoint that was skipped."""


def load_experiment(
    package: PackageFolder,
    *,
    checkpoint: int | None = None,
    untrained: bool = False,
    device: str = "auto",
    project: str | None = None,
    info: Mapping[str, Any] | None = None,
    trust: bool = False,
    before: LoadedExperiment | None = None,
    preparing: AbstractContextManager[object] = nullcontext(),  # noqa: B008  - it has no state
) -> LoadedExperiment:
    """Builds a package's Dataset and Runner and loads the weights of one checkpoint. Call it within
    `package_code`.

    It only reads: it takes no lock, quarantines nothing, needs no optimizer, and may be used while the
    package trains.

    Args:
        package: The package.
        checkpoint: The id of the checkpoint; None: the newest undamaged one of the run's lineage.
        untrained: Keeps the weights of `Runner.build`.
        device: auto, cpu, cuda, cuda:1, …
        project: The project's folder, for ``${project}``; None: the one recorded in the package.
        info: The value of ``Runner.info``; the Dataset is then not built.
        trust: Reads pickles of the checkpoint that are not signed with the key of this user.
        before: The same package with another checkpoint: its Dataset and data are used again.
        preparing: As for `native_project.build_data`.

    Raises:
        NotFound: There is no such checkpoint, or none at all.
        CheckpointError: The checkpoint is damaged, or all are, or it does not fit the Runner.
        ConfigError: A setting or a class path is wrong.
        ContractError: The project's classes do not keep the contract.
        Refused: The package has no Runner, or this machine does not have the device.
        Exception: Any error of the project's code.
    """
    require_runner(package)
    chosen = choose_device(device)
    root = project if project is not None else str(package.project)
    needs_data = before is None and info is None
    staged = native_project.stage_data(package, root) if needs_data else NO_ARCHIVES
    values, settings = native_project.resolve_settings(package, root, staged=staged)
    where = setting_locations(package)
    dataset = data = None
    made = native_project.runner_class(settings, package.path, where)
    if before is not None:
        dataset, data = before.dataset, before.data
    elif info is None:
        dataset = native_project.dataset_class(settings, package.path, where)(values)
        try:
            data = native_project.build_data(dataset, settings, preparing=preparing)
        except Exception as error:
            error.add_note("if only the Runner is needed: roost.open_package(path).load_model(info={...})")
            raise
    runner = native_project.build_runner(
        made, values, settings, info=data.info if data is not None else info or {}, device=chosen
    )
    found, notes = (None, []) if untrained else _load_weights(package, runner, checkpoint, trust=trust)
    return LoadedExperiment(values, settings, runner.eval(), dataset, data, found, notes)


def _load_weights(
    package: PackageFolder, runner: Runner, id: int | None, *, trust: bool
) -> tuple[Manifest, list[str]]:
    read = functools.partial(checkpoints.read, only=[_PART], pickles=Pickles.of(trust=trust))
    store = package.store()
    found, notes = (read(store.path(id)), []) if id is not None else store.newest_readable(read)
    if found is None:
        raise NotFound(
            "the package has no checkpoint yet",
            where=package.path,
            fix="wait for its first one, or use the untrained weights",
        )
    info, states = found
    ModuleState(runner).load_state_dict(states[_PART])
    return info, notes
