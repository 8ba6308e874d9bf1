"""The three classes of a project in DLNest's contract, imported from its package."""

from __future__ import annotations

import os
from typing import NamedTuple

from roost.base.errors import ContractError
from roost.config.dlnest.dlnest_settings import DlnestSettings
from roost.package.package import PackageFolder
from roost.package.results.staged_archives import DLNEST_KEY
from roost.package.setting_locations import setting_locations
from roost.project.dlnest import import_names, module_loading
from roost.project.dlnest.generations import DATASET, LIFE_CYCLE, RUNNER, Generation, Role, generation_of
from roost.project.staging import package_archives
from roost.project.staging.package_archives import StagedData
from roost.train.step import seeding


class ProjectClass(NamedTuple):
    """A class of a project."""

    role: Role
    found: type
    generation: Generation
    where: object
    """Where it was named."""


class ProjectClasses(NamedTuple):
    """The classes of a project."""

    life_cycle: ProjectClass
    runner: ProjectClass
    dataset: ProjectClass


def load_classes(package: PackageFolder, settings: DlnestSettings) -> ProjectClasses:
    """Imports the classes of a package, seeded, and makes the import names of DLNest's classes
    available. From then on pickled objects of the project's classes can be read.

    Raises:
        ConfigError: A file is missing.
        ContractError: A class is missing, is none of the contract, or its generation is unknown.
        Exception: An error of the project's code.
    """
    import_names.install(package.path)
    stage_data(package, settings).export(os.environ)  # the project finds the folders there
    seeding.seed_all(seeding.mix(settings.seed, "project"))
    life_cycle = _load(
        package, LIFE_CYCLE, "life_cycle", settings.life_cycle_file_path, settings.life_cycle_name
    )
    runner = _load(package, RUNNER, settings.runner_key, settings.runner_file_path, settings.runner_name)
    dataset = _load(package, DATASET, "dataset", settings.dataset_file_path, settings.dataset_name)
    return ProjectClasses(life_cycle, runner, dataset)


def stage_data(package: PackageFolder, settings: DlnestSettings) -> StagedData:
    """Unpacks the archives of ``roost.data.stage`` on this machine, unless they are unpacked there.

    Raises:
        RoostError, OSError: As `roost.project.staging.package_archives.stage_data`.
    """
    return package_archives.stage_data(
        settings.data.stage,
        package=package.path,
        project=str(package.project),
        where=setting_locations(package),
        key=DLNEST_KEY,
    )


def _load(package: PackageFolder, role: Role, prefix: str, path: str, name: str) -> ProjectClass:
    where, path_key, name_key = setting_locations(package), f"{prefix}_file_path", f"{prefix}_name"
    found = module_loading.load_class(
        path, name, package, settings=(path_key, name_key), where=where, has_bare_name=role is DATASET
    )
    if not issubclass(found, role.base):
        raise ContractError(
            f"is not a subclass of {role.base.__name__}",
            setting=name_key,
            received=name,
            where=where(name_key),
            fix=f"write `class {name}({role.base.__name__})`",
        )
    return ProjectClass(role, found, generation_of(found, role, where(name_key)), where(name_key))
