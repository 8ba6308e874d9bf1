"""A package that is about to be made: everything is checked before the first file of it is written."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roost.base.errors import ConfigError
from roost.config import interpolation
from roost.config.layers import Config
from roost.config.settings import Settings, StateSettings, parse_state_settings
from roost.package import environment, mirror_folders, package_name, snapshot
from roost.package.package import PackageFolder
from roost.package.project_preflight import check_settings, named_files
from roost.package.results import initial_weights
from roost.package.snapshot import Selection


@dataclass(frozen=True)
class PackageDraft:
    """Everything that is known before anything is made."""

    config: Config
    kind: str
    """train, or python: no Runner is named, and only a program of Python writes to it."""
    project: Path
    root: Path
    """Where the package goes."""
    selection: Selection | None
    """What is copied; nothing when None."""
    description: str | None

    def create(
        self,
        name: str | None,
        *,
        exactly: bool = False,
        command: Sequence[str] = (),
        like: PackageFolder | None = None,
    ) -> PackageFolder:
        """Makes the package; a taken name gets a suffix, None is the time.

        Args:
            name: The package's.
            exactly: A taken name is refused instead.
            command: As it was typed.
            like: One that was just made of the same project: git is not asked again.

        Raises:
            UsageError: The description makes no folder name.
            Refused: The name is taken.
            OSError: It cannot be written; what was made is removed.
        """
        if self.description:
            package_name.folder_name(self.description)  # refused before anything is made
        package = PackageFolder.create(
            self.root,
            name=name,
            exactly=exactly,
            values=self.config.values,
            provenance=self.config.provenance,
            request={
                "kind": self.kind,
                "command": list(command),
                "description": self.description,
                "git": like.request["git"] if like else environment.git_state(self.project),
                "project": str(self.project),
                "created": round(time.time(), 3),
            },
            selection=self.selection,
        )
        if self.description:
            package.describe(self.description)
        return package

    def left_out(self) -> list[str]:
        """A line for each file that is linked because of what it is."""
        found = self.selection.left_out if self.selection is not None else []
        return [f"{one['path']} is linked, not copied: {one['reason']}" for one in found]


@dataclass(frozen=True)
class TrainingDraft(PackageDraft):
    """One that can be trained: it has a Runner, a Dataset, and the code of both."""

    selection: Selection
    settings: Settings
    files: list[Path] = field(default_factory=list)
    """Those that the settings name."""


def prepare_training(
    config: Config,
    *,
    root: Path | None = None,
    description: str | None = None,
    like: TrainingDraft | None = None,
) -> TrainingDraft:
    """Checks a config that names a Runner and a Dataset, and chooses what to copy.

    Args:
        config: The merged config, from a file.
        root: Where the package goes; None: its ``save_root``.
        description: A few words about the run; None: those of the config.
        like: One that was just prepared: where it names the same files, the same is copied.

    Raises:
        ConfigError: The config, or a file it names, is wrong.
        OSError: A folder cannot be read.
    """
    project = config.path.parent
    settings = check_settings(config.values, project=project, package="${package}", where=config.where)
    chosen = _checked_root(config, root, settings.save_root)
    files = named_files(settings, root=project, where=config.where)
    initial_weights.require(settings, project=project, where=config.where)
    if like and (like.root, like.config.files, like.files) == (chosen, config.files, files):
        selection = like.selection
    else:
        selection = _select(config, chosen, files)
    mirror_folders.check(settings.mirrors, copied=[*selection.files, *selection.links], where=config.where)
    return TrainingDraft(
        config=config,
        kind="train",
        project=project,
        root=chosen,
        selection=selection,
        description=description or settings.description,
        settings=settings,
        files=files,
    )


def prepare_python(
    config: Config, *, copy: bool, root: Path | None = None, description: str | None = None
) -> PackageDraft:
    """Checks a config that is used from Python alone: all but roost's sections about packages is its own.

    Args:
        config: The merged config.
        copy: Whether to copy the folder of its file.
        root: Where the package goes; None: its ``save_root``.
        description: A few words about the run; None: those of the config.

    Raises:
        ConfigError: ``save_root``, ``description`` or ``checkpoint`` is wrong.
        OSError: A folder cannot be read.
    """
    project = config.path.parent
    context = {"project": str(project), "package": "${package}"}
    values = interpolation.resolve(config.values, context, where=config.where)
    settings: StateSettings = parse_state_settings(values, where=config.where)
    chosen = _checked_root(config, root, settings.save_root)
    return PackageDraft(
        config=config,
        kind="python",
        project=project,
        root=chosen,
        selection=_select(config, chosen, []) if copy else None,
        description=description or settings.description,
    )


def _select(config: Config, root: Path, files: Iterable[Path]) -> Selection:
    project = config.path.parent
    read = [file for file in config.files if file.resolve().is_relative_to(project.resolve())]
    inside = [root] if root.resolve().is_relative_to(project.resolve()) else []
    return snapshot.select(project, named=[*files, *read], exclude=inside)


def _checked_root(config: Config, given: Path | None, save_root: str) -> Path:
    project = config.path.parent
    # Without `..`: the package must be found when the project is gone.
    root = Path(os.path.normpath(given.absolute() if given is not None else project / _expanded(save_root)))
    if root.resolve() == project.resolve():
        raise ConfigError(
            "is the project's own folder",
            setting="save_root",
            received=str(given) if given is not None else save_root,
            where=None if given is not None else config.where("save_root"),
            fix="name a folder of its own, such as runs",
        )
    return root


def _expanded(save_root: str) -> Path:
    try:
        return Path(save_root).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            str(error), setting="save_root", received=save_root, fix="write the whole path"
        ) from None
