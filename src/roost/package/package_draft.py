"""A package before its creation: everything is checked before its first file is written."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roost.base.errors import ConfigError, Refused
from roost.config import interpolation
from roost.config.layers import Config
from roost.config.settings import Settings, StateSettings, parse_state_settings
from roost.package import environment, package_name, snapshot
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.project_preflight import check_mirror_paths, check_new_config, named_files
from roost.package.results import initial_weights
from roost.package.snapshot import Selection


@dataclass(frozen=True)
class PackageDraft:
    """A checked package that can be created."""

    config: Config
    kind: PackageKind
    """train, or python: the config names no Runner, and only a Python program writes to the package."""
    project: Path
    root: Path
    """The folder that will contain the package."""
    selection: Selection | None
    """The files to copy; None: none."""
    description: str | None

    def create(
        self,
        name: str | None,
        *,
        exactly: bool = False,
        command: Sequence[str] = (),
        like: PackageFolder | None = None,
    ) -> PackageFolder:
        """Creates the package.

        Args:
            name: The package's name; None: the time. A name that exists gets a suffix.
            exactly: Refuses a name that exists, instead of adding a suffix.
            command: The command line as it was typed.
            like: A package that was just created from the same project: its git state is reused.

        Raises:
            UsageError: The description cannot be used as a folder name.
            Refused: The name exists, and ``exactly`` is set; or `root` cannot be written.
            OSError: The package cannot be written; what was created is removed.
        """
        self.require_writable()
        if self.description:
            package_name.folder_name(self.description)  # refused before anything is created
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

    def require_writable(self) -> None:
        """Checks that packages can be made in `root`.

        Raises:
            Refused: The folder, or the one in which it would be made, cannot be written.
        """
        folder = next(one for one in (self.root, *self.root.parents) if one.exists())
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            raise Refused(
                "packages cannot be made here: the folder cannot be written",
                setting="save_root",
                received=self.config.values.get("save_root"),
                where=folder,
                fix="name a folder of yours, such as save_root=~/runs",
            )

    def left_out(self) -> list[str]:
        """Returns a line for each path that is not copied, with the reason."""
        found = self.selection.left_out if self.selection is not None else []
        return [f"{one['path']} is linked, not copied: {one['reason']}" for one in found]


@dataclass(frozen=True)
class TrainingDraft(PackageDraft):
    """A draft that can be trained: it has a Runner, a Dataset, and the code of both."""

    selection: Selection
    settings: Settings
    files: list[Path] = field(default_factory=list)
    """The files that the settings name."""


def prepare_training(
    config: Config,
    *,
    root: Path | None = None,
    description: str | None = None,
    like: TrainingDraft | None = None,
) -> TrainingDraft:
    """Checks a config that names a Runner and a Dataset, and selects the files to copy.

    Args:
        config: The merged config, from a file.
        root: The folder that will contain the package; None: the config's ``save_root``.
        description: A few words about the run; None: those of the config.
        like: A draft that was just prepared: its selection is reused if it has the same root and files.

    Raises:
        ConfigError: The config, or a file that it names, is wrong.
        OSError: A folder cannot be read.
    """
    project = config.path.parent
    settings = check_new_config(config)
    chosen = _checked_root(config, root, settings.save_root)
    files = named_files(settings, root=project, where=config.where)
    initial_weights.require(settings, project=project, where=config.where)
    if like and (like.root, like.config.files, like.files) == (chosen, config.files, files):
        selection = like.selection
    else:
        selection = _select(config, chosen, files)
    check_mirror_paths(settings.mirrors, copied=[*selection.files, *selection.links], where=config.where)
    return TrainingDraft(
        config=config,
        kind=PackageKind.TRAIN,
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
    """Checks a config that is used only from Python: of its keys, roost reads ``save_root``, ``description``
    and ``checkpoint``; all others are free.

    Args:
        config: The merged config.
        copy: Whether to copy the folder of the config file.
        root: The folder that will contain the package; None: the config's ``save_root``.
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
        kind=PackageKind.PYTHON,
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
    # Without `..`: the package must be found when the project no longer exists.
    root = Path(os.path.normpath(given.absolute() if given is not None else project / _expanded(save_root)))
    if root.resolve() == project.resolve():
        raise ConfigError(
            "the project's own folder cannot be the save root",
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
