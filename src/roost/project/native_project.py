"""Builds and seeds the Dataset, Runner and hooks of a package, from its own code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from roost.base.errors import ContractError
from roost.config import interpolation, objects
from roost.config.sections.yaml_project import DatasetSettings, ObjectSettings, RunnerSettings
from roost.config.settings import Settings, Where, parse_settings
from roost.package.package import PackageFolder
from roost.package.results.initial_weights import InitialWeights
from roost.package.setting_locations import setting_locations
from roost.project import data_loaders, init_from
from roost.project.contract import Data, Dataset, Runner
from roost.project.lightning import module_contract
from roost.project.lightning.lightning_dataset import LightningDataset
from roost.project.lightning.lightning_runner import LightningRunner
from roost.project.staging import package_archives
from roost.project.staging.package_archives import NO_ARCHIVES, StagedData
from roost.project.yaml import yaml_project
from roost.train.distributed import rank_consistency, replicas
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.hook import Hook
from roost.train.model.parameters import freeze
from roost.train.step import seeding

T = TypeVar("T")


@dataclass(frozen=True)
class Experiment:
    """The built parts of a run."""

    runner: Runner
    data: Data
    hooks: list[Hook]
    settings: Settings
    root: Path
    """The folder of its code: class paths in the settings are relative to it."""
    began_with: Sequence[InitialWeights] = ()
    """The initial weights loaded by ``init_from``."""
    ranks: Ranks = ALONE
    """The ranks that train it together."""
    strategy: str = "single"
    """The strategy of the ranks: single, ddp or fsdp."""


def resolve_settings(
    package: PackageFolder, project: str, *, staged: StagedData = NO_ARCHIVES
) -> tuple[dict[str, Any], Settings]:
    """Returns the package's settings with paths and variables filled in, as plain values and parsed.
    References to folders of archives that are not in ``staged`` stay as they are."""
    where = setting_locations(package)
    context = {"project": project, "package": str(package.path)}
    values = interpolation.resolve(package.settings, context, where=where)
    if staged.archives:
        values = interpolation.fill_late(values, staged.folders())
    return values, parse_settings(values, where=where)


def stage_data(package: PackageFolder, project: str, *, only_small: bool = False) -> StagedData:
    """Unpacks the archives of ``data.stage`` on this machine, unless they are unpacked there.

    Args:
        package: The package.
        project: The folder of the project.
        only_small: See `roost.project.staging.package_archives.stage_data`.

    Raises:
        RoostError, OSError: As that.
    """
    _, settings = resolve_settings(package, project)
    where = setting_locations(package)
    return package_archives.stage_data(
        settings.data.stage, package=package.path, project=project, where=where, only_small=only_small
    )


def load(
    package: PackageFolder,
    *,
    project: str,
    device: str,
    staged: StagedData = NO_ARCHIVES,
    begins: bool = False,
    ranks: Ranks = ALONE,
    strategy: str = "single",
) -> Experiment:
    """Imports the package's own code and builds its experiment on ``device``.

    Args:
        package: The package.
        project: The project's folder, for ``${project}``.
        device: The device of the Runner.
        staged: The staged archives of the package.
        begins: Whether the run begins here; one that resumes from a checkpoint does not load ``init_from``.
        ranks: The ranks that train it together.
        strategy: The strategy of the ranks: single, ddp or fsdp.

    Raises:
        RoostError: A setting or a class path is wrong, or the initial weights do not fit.
        ContractError: The project's classes do not keep the contract.
    """
    values, settings = resolve_settings(package, project, staged=staged)
    where = setting_locations(package)
    dataset = dataset_class(settings, package.path, where)(values)
    made = runner_class(settings, package.path, where)
    hooks = project_hooks(settings, package.path, values, where)
    data = build_data(dataset, settings, ranks)
    runner = build_runner(made, values, settings, info=data.info, device=device)
    hooks += runner.hooks()
    began_with = initialize_weights(runner, settings, package.path, project, where, begins=begins)
    if ranks.are_several:
        rank_consistency.require_same_model(runner, ranks)
        replicas.broadcast_module(runner, ranks)
    return Experiment(runner, data, hooks, settings, package.path, began_with, ranks=ranks, strategy=strategy)


def initialize_weights(
    runner: Runner, settings: Settings, root: Path, project: str, where: Where, *, begins: bool
) -> list[InitialWeights]:
    """Loads the weights of ``init_from`` if the run begins here, then freezes the parameters of ``freeze``;
    prints a report of both."""
    found = []
    if begins:
        found = init_from.load(runner, settings, package=root, project=Path(project), where=where)
    for line in [*init_from.report_lines(found), *freeze(runner, settings.freeze, where=where)]:
        print(line, flush=True)
    return found


def dataset_class(settings: Settings, root: Path, where: Where) -> type[Dataset]:
    """Returns the project's Dataset class, imported from the package at ``root`` or made from the config."""
    if isinstance(settings.dataset, DatasetSettings):
        return yaml_project.dataset_class(settings.dataset, root, where)
    return _locate_class(Dataset, settings.dataset, "dataset", root, where, adapt=_of_data_module)


def runner_class(settings: Settings, root: Path, where: Where) -> type[Runner]:
    """Returns the project's Runner class, imported from the package at ``root`` or made from the config."""
    if isinstance(settings.runner, RunnerSettings):
        return yaml_project.runner_class(settings.runner, root, where)
    found = _locate_class(Runner, settings.runner, "runner", root, where, adapt=_of_lightning_module)
    _check_loss(found)
    return found


def project_hooks(settings: Settings, root: Path, values: Mapping[str, Any], where: Where) -> list[Hook]:
    """Returns the project's hooks, imported from the package at ``root`` and constructed."""
    return [_hook(f"hooks.{i}", one, root, values, where) for i, one in enumerate(settings.hooks)]


def build_data(
    dataset: Dataset,
    settings: Settings,
    ranks: Ranks = ALONE,
    *,
    preparing: AbstractContextManager[object] = nullcontext(),  # noqa: B008  - it has no state
) -> Data:
    """Returns the sets that the Dataset builds, seeded as in training. One rank of each machine calls
    `prepare`; the others wait for it.

    Args:
        dataset: The Dataset.
        settings: The settings of the run.
        ranks: The ranks that train together.
        preparing: Entered around `prepare`, for processes that are no ranks of each other.
    """
    seeding.seed_all(seeding.mix(settings.seed, "data"))
    if ranks.is_first_on_machine:
        # Random numbers drawn in prepare() must not make this rank build other data than the others.
        with seeding.isolated() if ranks.are_several else nullcontext(), preparing:
            dataset.prepare()
    ranks.wait_for_first_on_machine()
    return check_data(dataset.build(), type(dataset))


def build_runner(
    made: type[Runner],
    values: Mapping[str, Any],
    settings: Settings,
    *,
    info: Mapping[str, Any],
    device: str,
) -> Runner:
    """Returns the Runner on ``device`` with its initial weights, seeded as in training and independent of the
    random numbers that the data drew."""
    seeding.seed_all(seeding.mix(settings.seed, "build"))
    runner = made(values, info)
    runner.build()
    if next(runner.parameters(), None) is None:
        raise ContractError(
            f"{made.__name__} has no parameters after build()",
            fix="assign its modules to self, as in `self.net = Net()`",
        )
    if settings.sync_batch_norm:
        convert: Callable[[Runner], Runner] = nn.SyncBatchNorm.convert_sync_batchnorm
        runner = convert(runner)  # in one process it computes as the plain one
    return runner.to(torch.device(device))


def _of_lightning_module(found: type) -> type | None:
    return LightningRunner.of(found) if module_contract.is_module(found) else None


def _of_data_module(found: type) -> type | None:
    return LightningDataset.of(found) if module_contract.is_data_module(found) else None


def _locate_class(
    base: type[T],
    path: str,
    setting: str,
    root: Path,
    where: Where,
    *,
    adapt: Callable[[type], type | None] = lambda found: None,
) -> type[T]:
    """Returns the class at a path.

    Args:
        adapt: Returns the class that takes the place of one that is not derived from ``base``; None: none.
    """
    found = objects.locate(path, root=root, setting=setting, where=where(setting))
    if inspect.isclass(found) and not issubclass(found, base):
        found = adapt(found) or found
    if not inspect.isclass(found) or not issubclass(found, base):
        raise ContractError(
            f"is not a subclass of roost.{base.__name__}",
            setting=setting,
            received=path,
            where=where(setting),
            fix=f"write `class {path.rpartition(':')[2]}(roost.{base.__name__})`",
        )
    return found


def _check_loss(runner: type[Runner]) -> None:
    if runner.loss is Runner.loss and runner.update is Runner.update:
        raise ContractError(
            f"{runner.__name__} has no loss()",
            fix="write `def loss(self, batch)` that returns the loss of a batch",
        )


def _hook(
    setting: str, asked: str | ObjectSettings, root: Path, values: Mapping[str, Any], where: Where
) -> Hook:
    path = asked if isinstance(asked, str) else asked.class_
    found = _locate_class(Hook, path, setting, root, where)
    if not isinstance(asked, str):
        hook: Hook = objects.build({"class": path, **asked.arguments}, root, setting, where)
        hook.args = values
        return hook
    needs = [name for name, one in inspect.signature(found).parameters.items() if _is_required(one)]
    if needs:
        raise ContractError(
            f"{found.__name__} needs {', '.join(needs)}, but roost constructs it without arguments",
            setting=setting,
            received=path,
            where=where(setting),
            fix=f"write it as {{class: {path}, {needs[0]}: ...}}, or give them defaults",
        )
    hook = found()
    hook.args = values
    return hook


def _is_required(parameter: inspect.Parameter) -> bool:
    variable = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and not variable


def check_data(data: object, dataset: type) -> Data:
    """Returns the data after checking that it is a valid result of `Dataset.build`.

    Raises:
        ContractError: It is not; the message names the set and the problem.
    """
    if not isinstance(data, Data):
        raise ContractError(
            f"{dataset.__name__}.build() must return roost.Data",
            received=type(data).__name__,
            fix="return roost.Data(train=..., valid=..., test=...)",
        )
    for split, given in (("train", data.train), ("valid", data.valid), ("test", data.test)):
        for name in given if isinstance(given, Mapping) else ():
            if not isinstance(name, str) or not name or "/" in name:
                raise ContractError(
                    f"the {split} sets need names without a slash",
                    received=name,
                    fix=f'return roost.Data({split}={{"clean": ..., "noisy": ...}})',
                )
    found = data_loaders.named_sets(data)
    if not any(name.partition("/")[0] == "train" for name in found):
        raise ContractError(f"{dataset.__name__}.build() gives no training set", fix="roost.Data(train=...)")
    for name, one in found.items():
        _check_set(one, name)
    data_loaders.check_collate(data)
    return data


def _check_set(one: Any, name: str) -> None:
    kind = data_loaders.set_kind(one)
    if kind is None:
        if isinstance(one, type):
            raise ContractError(
                f"the {name} set is the class {one.__name__} itself",
                fix=f"give an object of it: {one.__name__}(...)",
            )
        raise ContractError(
            f"the {name} set is of type {type(one).__name__}, which has neither len() and [index] nor iter()",
            fix="give a map-style or iterable dataset, a DataLoader, or roost.Sampled(function)",
        )
    if name.startswith("train/") and kind != "indexed":
        raise ContractError(
            f"the {name} set is of type {type(one).__name__}, which has no len() or no [index], and several "
            "training sets are drawn from by index",
            fix="give map-style sets, or one set that draws from all of them",
        )
    if kind == "indexed" and _length(one, name) == 0:
        raise ContractError(f"the {name} set is empty", fix="look at what Dataset.build() reads")


def _length(one: Any, name: str) -> int:
    try:
        return len(one)
    except (TypeError, ValueError, OverflowError) as error:
        assert error.__traceback__ is not None
        if error.__traceback__.tb_next is not None:  # its own code raised
            raise
        raise ContractError(
            f"the len() of the {name} set ({type(one).__name__}) is not a number of samples: {error}",
            fix="let __len__ return a whole number",
        ) from error
