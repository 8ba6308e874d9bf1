"""`SavePackage`: DLNest's interface of a package for a program with a loop of its own."""

# Not durable: opens the output of the program, which it writes line by line

from __future__ import annotations

import atexit
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from roost.base import durable
from roost.base.errors import NotFound, Refused, UsageError
from roost.config import layers
from roost.config.dlnest.dlnest_settings import SECTION, parse_tracks
from roost.config.dlnest.root_folder import find_root
from roost.config.layers import Config, Layer
from roost.config.run_settings import Contract
from roost.package import package_name
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.pickled_values import Pickles
from roost.package.checkpoints.retention import policy_from_settings
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.package_draft import PackageDraft, prepare_training
from roost.project.device_choice import choose_device
from roost.project.dlnest.run_state import PROJECT
from roost.project.package_writer import PackageWriter


class SavePackage:
    """A package that a program writes by itself, with the three tracks of ``checkpoint_args``.

    ```
    from DLNest.SavePackage.SavePackage import SavePackage

    package = SavePackage("root.json")
    package.saveToNewDir(copyFiles=False)
    package.saveACheckpoint({"runner": model.state_dict()}, holdThisCheckpoint=better)
    ```

    The first save takes the package's lock, which the program holds until it ends.

    Args:
        configPath: A config file, with its ``child_jsons``.
        freqPath: A file above it.

    Raises:
        NotFound: There is no such file.
        ConfigError: The config is wrong.
    """

    def __init__(self, configPath: str = "", freqPath: str = "") -> None:
        self._config: Config | None = None
        self._package: PackageFolder | None = None
        self._writer: PackageWriter | None = None
        if configPath:
            self._set_config(layers.load(configPath, tuning=freqPath or None, contract=Contract.DLNEST))

    @property
    def path(self) -> Path:
        """The folder of the package.

        Raises:
            Refused: There is none yet.
        """
        return self._opened().path

    def giveArgs(self, args: dict[str, Any]) -> None:
        """Takes a config as a dict, with ``save_root`` and ``checkpoint_args``."""
        values = dict(args)
        layer = Layer("given from Python", values)
        self._set_config(Config(Path.cwd() / "args", values, [], (layer,), Contract.DLNEST))

    def saveToNewDir(self, overrideSaveName: str = "", copyFiles: bool = True) -> None:
        """Makes a package in ``save_root``. A name that exists gets a suffix: nothing is overwritten.

        Args:
            overrideSaveName: The name; empty: the time.
            copyFiles: Whether to copy the files that the config names.

        Raises:
            Refused: There is no config.
            UsageError: The name is not a folder name.
            ConfigError: The config names no runner, and ``copyFiles`` is set, or a file is missing.
        """
        if self._config is None:
            raise Refused("there is no config", fix="give SavePackage a config file, or call giveArgs()")
        if overrideSaveName:
            package_name.checked_name(overrideSaveName, setting="overrideSaveName")
        draft = prepare_training(self._config) if copyFiles else _without_files(self._config)
        for line in draft.notes():
            warnings.warn(line, stacklevel=2)
        self._begin_writing(draft.create(overrideSaveName or None, command=sys.argv))

    def initFromAnExistSavePackage(self, packagePath: str) -> None:
        """Opens a package that exists.

        Raises:
            NotFound: There is no package.
        """
        self._begin_writing(PackageFolder.open(packagePath))

    def saveACheckpoint(self, stateDict: dict[Any, Any], holdThisCheckpoint: bool = False) -> None:
        """Saves a state durably, and removes the checkpoints that no track keeps.

        Raises:
            Refused: There is no package, another program writes to it, or a run of roost has trained it.
            CheckpointError: The state holds what can be neither packed nor pickled.
            OSError: It could not be written; the older checkpoints are unchanged.
        """
        self._opened_writer().save(stateDict, hold=holdThisCheckpoint, step=None, epoch=None, metrics={})

    def saveVisualString(self, visualString: str) -> None:
        """Writes an empty file of this name into the package.

        Raises:
            UsageError: It is not a file name.
            Refused: The package has a file of this name.
        """
        if package_name.folder_name(visualString) != visualString:
            raise UsageError("is not a file name", setting="visualString", received=visualString)
        file = self.path / visualString
        if file.exists():
            if file.stat().st_size == 0:
                return
            raise Refused("the package has this file", setting="visualString", received=visualString)
        durable.write(file, b"")

    def getStateDict(self, id: int = -1, device: str = "cuda:0") -> Any:
        """Returns a saved state; of a package that roost has trained, what it saved of the project.

        Args:
            id: The checkpoint; -1: the newest undamaged one.
            device: The device of the tensors.

        Raises:
            NotFound: There is no such checkpoint.
            CheckpointError: It is damaged, or has pickled objects of another user.
            Refused: This machine does not have the device.
        """
        store = self._opened().store()
        try:
            chosen = choose_device(device)
        except Refused as error:  # the default is the GPU, as in DLNest
            fix = 'give device="cpu", or "auto"'
            raise Refused(error.message, setting="device", received=device, fix=fix) from None

        def read(path: Path) -> Any:
            return checkpoint.read(path, only=[PROJECT], device=chosen, pickles=Pickles.OWN)[1][PROJECT]

        if id != -1:
            return read(store.path(id))
        found, notes = store.newest_readable(read)
        for line in notes:
            warnings.warn(line, stacklevel=2)
        if found is None:
            raise NotFound("the package has no checkpoint yet", where=self.path)
        return found

    def setCkptID(self, ckptID: int) -> None:
        """Goes on from this checkpoint: later ones stay on the disk, but count no more.

        Raises:
            NotFound: There is no such checkpoint.
            CheckpointError: It is damaged.
            Refused: Another program writes to the package.
        """
        self._opened_writer().set_current(ckptID)

    def getOutputFile(self, rank: int = -1) -> IO[str]:
        """Returns the package's output file, open to append: ``_output.txt``, or that of a rank."""
        name = "_output.txt" if rank == -1 else f"_output_{rank}.txt"
        return (self.path / name).open("a", buffering=1, encoding="utf-8")

    def _set_config(self, config: Config) -> None:
        parse_tracks(config.values, where=config.where)
        self._config = config

    def _begin_writing(self, package: PackageFolder) -> None:
        self._end_writing()
        policy = policy_from_settings(parse_tracks(package.settings))
        self._package = package
        self._writer = PackageWriter(package, part=PROJECT, policy=policy, pickles=Pickles.OWN)
        atexit.register(self._end_writing)

    def _end_writing(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            atexit.unregister(self._end_writing)
            writer.end(getattr(sys, "last_value", None))  # the error that ended the program

    def _opened(self) -> PackageFolder:
        if self._package is None:
            raise Refused(
                "there is no package yet", fix="call saveToNewDir() or initFromAnExistSavePackage()"
            )
        return self._package

    def _opened_writer(self) -> PackageWriter:
        self._opened()
        assert self._writer is not None
        return self._writer


def _without_files(config: Config) -> PackageDraft:
    """Returns a draft with the settings alone."""
    values: Mapping[str, Any] = {key: one for key, one in config.values.items() if key != SECTION}
    folder = find_root(config, None)
    root = values.get("save_root")
    if not isinstance(root, str) or not root:
        raise UsageError("names no folder for packages", setting="save_root", received=root)
    return PackageDraft(
        config=replace(config, values=dict(values)),
        kind=PackageKind.PYTHON,
        project=folder.path,
        root=Path(folder.resolve(root)),
        selection=None,
        description=None,
        project_notes=folder.notes,
    )
