"""A package before its creation: everything is checked before its first file is written."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roost.base.errors import ConfigError, NotFound, Refused
from roost.base.text.typed_path import typed_path
from roost.config import interpolation
from roost.config.dlnest import mail_password
from roost.config.dlnest.dlnest_settings import parse_dlnest_settings, similar_key_notes
from roost.config.dlnest.root_folder import find_root
from roost.config.layers import Config
from roost.config.other_tools import foreign_keys
from roost.config.project_folder import ProjectFolder, given_folder, named_project, nearest_project
from roost.config.run_settings import Contract, RunSettings
from roost.config.settings import Settings, StateSettings, parse_state_settings
from roost.package import package_name, sessions, snapshot
from roost.package.dlnest.named_paths import PLACES, find_named
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.project_preflight import (
    check_mirror_paths,
    check_new_config,
    code_files,
    named_files,
    require_classes,
    require_plugins,
)
from roost.package.results import initial_weights, staged_archives
from roost.package.resume import environment
from roost.package.snapshot import Selection

_MAX_COMPARED = 8
"""Packages whose manifests are read: the newest, as most names are times."""


@dataclass(frozen=True, kw_only=True)
class PackageDraft:
    """A checked package that can be created."""

    config: Config
    kind: PackageKind
    """train, or python: the config names no Runner, and only a Python program writes to the package."""
    project: Path
    """The folder of the code."""
    root: Path
    """The folder that will contain the package."""
    selection: Selection | None
    """The files to copy; None: none."""
    description: str | None
    project_notes: Sequence[str] = ()
    """How the project's folder was found, if that is not obvious; one line each."""
    places: Mapping[str, str] = field(default_factory=dict)
    """See `NamedPaths.places`."""
    rerun_of: Mapping[str, str] | None = None
    """The package whose run begins again: its name, its path, and whose code it has; None: a new run."""

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
            like: A package that was just created: its git state is reused if it is of the same project.

        Raises:
            UsageError: The description cannot be used as a folder name.
            Refused: The name exists, and ``exactly`` is set; or `root` cannot be written.
            OSError: The package cannot be written; what was created is removed.
        """
        self.require_writable()
        description = self.description
        if description:
            package_name.folder_name(description)  # refused before anything is created
        project = str(self.project)
        is_alike = like is not None and like.request.get("project") == project
        return PackageFolder.create(
            self.root,
            name=name,
            exactly=exactly,
            values=self.config.values,
            provenance=self.config.provenance,
            request={
                "kind": self.kind,
                "command": list(command),
                "description": self.description,
                "git": like.request.get("git") if like and is_alike else environment.git_state(self.project),
                "project": project,
                "created": round(time.time(), 3),
                **({PLACES: dict(self.places)} if self.places else {}),
                **({"rerun_of": dict(self.rerun_of)} if self.rerun_of else {}),
            },
            selection=self.selection,
            fill=(lambda folder: PackageFolder(folder).describe(description)) if description else None,
        )

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

    def notes(self, *, is_check: bool = True) -> list[str]:
        """Returns lines for the user: how the config was read, the project's folder if it was chosen, the
        paths that are not copied, with the reasons, and the size of a large copy.

        Args:
            is_check: Whether to name the paths in any case. Of runs only the first in `root` names them: it
                is the same line for each. To be called before the package is created.
        """
        chosen = [*self.config.notes, *self.project_notes]
        if self.selection is None:
            return chosen
        is_said = is_check or not self._is_known_to_root(self.selection)
        left_out = self.selection.left_out_notes() if is_said else []
        size = self.selection.size_note()
        return [*chosen, *left_out, *([size] if size else [])]

    def _is_known_to_root(self, selection: Selection) -> bool:
        """Whether one of the last packages here left out the same paths."""
        try:
            names = sorted(os.listdir(self.root), reverse=True)[:_MAX_COMPARED]  # noqa: PTH208
        except OSError:  # it does not exist yet
            return False
        manifests = (sessions.load_json(self.root / name / "manifest.json") or {} for name in names)
        these = sorted(map(str, selection.left_out))
        return any(sorted(map(str, one.get("left_out") or ())) == these for one in manifests)


@dataclass(frozen=True, kw_only=True)
class TrainingDraft(PackageDraft):
    """A draft that can be trained, in either contract: it has a Runner, a Dataset, and the code of both."""

    selection: Selection
    settings: RunSettings
    files: list[Path] = field(default_factory=list)
    """The files that the settings name."""


def prepare_training(
    config: Config,
    *,
    project: Path | None = None,
    root: Path | None = None,
    description: str | None = None,
    like: TrainingDraft | None = None,
) -> TrainingDraft:
    """Checks a config that names a Runner and a Dataset, natively or in DLNest's contract, and selects
    the files to copy.

    Args:
        config: The merged config, from a file.
        project: The project's folder; None: that of the config (`roost.config.project_folder`).
        root: The folder that will contain the package; None: the config's ``save_root``.
        description: A few words about the run; None: those of the config.
        like: A draft that was just prepared: its selection is reused if it has the same project, root and
            files.

    Raises:
        NotFound: ``project`` does not exist.
        ConfigError: The config, or a file that it names, is wrong.
        OSError: A folder cannot be read.
    """
    if config.contract is Contract.DLNEST:
        return _prepare_dlnest(config, project, root, description, like)
    found, settings = _project_and_settings(config, project)
    project = found.path
    chosen = _checked_root(config, project, root, settings.save_root)
    files = named_files(settings, root=project, where=config.where)
    initial_weights.require(settings, project=project, where=config.where)
    same = (like.project, like.root, like.config.files, like.files) if like else None
    if like and same == (project, chosen, config.files, files):
        selection = like.selection
    else:
        selection = _select(config, project, chosen, files)
    check_mirror_paths(settings, copied=[*selection.files, *selection.links], where=config.where)
    return TrainingDraft(
        config=config,
        kind=PackageKind.TRAIN,
        project=project,
        project_notes=[found.note] if found.note else [],
        root=chosen,
        selection=selection,
        description=description or settings.description,
        settings=settings,
        files=files,
    )


def _prepare_dlnest(
    config: Config,
    given: Path | None,
    root: Path | None,
    description: str | None,
    like: TrainingDraft | None,
) -> TrainingDraft:
    settings = parse_dlnest_settings(config.values, where=config.where)
    mail_password.refuse_in_config(settings.plugins_config, config.where)
    staged_archives.check_dlnest(config.values, settings.data.stage, config.where)
    folder = find_root(config, given)
    named = find_named(settings, folder, config.where)
    require_classes(settings, folder.resolve, config.where)
    require_plugins(settings, folder.resolve, config.where)
    chosen = _checked_root(config, folder.path, root, str(folder.resolve(str(_expanded(settings.save_root)))))
    files = named.sources()
    same = (like.project, like.root, like.config.files, like.files) if like else None
    if like and same == (folder.path, chosen, config.files, files):
        selection = like.selection
    else:
        selection = snapshot.select(
            folder.path,
            named=[*named.inside, *_below(folder.path, config.files)],
            exclude=_below(folder.path, [chosen]),
            outside=named.outside,
            only_named_must_fit=True,
        )
    check_mirror_paths(settings, copied=[*selection.files, *selection.links], where=config.where)
    return TrainingDraft(
        config=config,
        kind=PackageKind.DLNEST,
        project=folder.path,
        project_notes=[*folder.notes, *similar_key_notes(config.values, config.where)],
        places=named.places,
        root=chosen,
        selection=selection,
        description=description or settings.description,
        settings=settings,
        files=files,
    )


def _project_and_settings(config: Config, given: Path | None) -> tuple[ProjectFolder, Settings]:
    """Returns the project's folder, and the settings with its path as ``${project}``."""

    def checked(project: Path) -> Settings:
        return check_new_config(config, project=project)

    foreign_keys.refuse(config)  # first: other tools, too, have a key `project`, and references of their own
    if (named := named_project(config, given)) is not None:
        return named, checked(named.path)
    settings = checked(config.path.parent)
    found = nearest_project(config, code_files(settings))
    return found, settings if found.path == config.path.parent else checked(found.path)


def prepare_python(
    config: Config,
    *,
    copy: bool,
    project: Path | None = None,
    root: Path | None = None,
    description: str | None = None,
) -> PackageDraft:
    """Checks a config that is used only from Python: of its keys, roost reads ``save_root``, ``description``
    and ``checkpoint``; all others are free.

    Args:
        config: The merged config.
        copy: Whether to copy the project's folder.
        project: The project's folder; None: the config's folder.
        root: The folder that will contain the package; None: the config's ``save_root``.
        description: A few words about the run; None: those of the config.

    Raises:
        NotFound: ``project`` does not exist.
        ConfigError: ``save_root``, ``description`` or ``checkpoint`` is wrong.
        OSError: A folder cannot be read.
    """
    project = config.path.parent if project is None else given_folder(project)
    context = {"project": str(project), "package": "${package}"}
    values = interpolation.resolve(config.values, context, where=config.where)
    settings: StateSettings = parse_state_settings(values, where=config.where)
    chosen = _checked_root(config, project, root, settings.save_root)
    return PackageDraft(
        config=config,
        kind=PackageKind.PYTHON,
        project=project,
        root=chosen,
        selection=_select(config, project, chosen, []) if copy else None,
        description=description or settings.description,
    )


def _select(config: Config, project: Path, root: Path, files: Iterable[Path]) -> Selection:
    read = _below(project, config.files)
    return snapshot.select(project, named=[*files, *read], exclude=_below(project, [root]))


def _below(folder: Path, paths: Iterable[Path]) -> list[Path]:
    """Returns the paths that are in a folder."""
    return [path for path in paths if path.resolve().is_relative_to(folder.resolve())]


def _checked_root(config: Config, project: Path, given: Path | None, save_root: str) -> Path:
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
        return typed_path(save_root)
    except NotFound as error:
        raise ConfigError(
            error.message, setting="save_root", received=save_root, fix="write the whole path"
        ) from None
