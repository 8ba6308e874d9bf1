"""The folder of one run: complete, relocatable, and the only truth about it."""

# Not durable: creates the folders and the lock of a new package, removes a failed creation

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from roost.base import durable, safe_read
from roost.base.errors import NotFound
from roost.base.text.typed_path import typed_path
from roost.package import package_name, sessions, snapshot
from roost.package.checkpoints import checkpoint
from roost.package.dlnest import original_folder
from roost.package.kinds import PackageKind
from roost.package.session_folder import SessionFolder

if TYPE_CHECKING:
    from roost.package import records
    from roost.package.checkpoints.checkpoint_store import CheckpointStore

FORMAT = 1


class PackageFolder(SessionFolder):
    """A package on disk, which is the session folder of its trainings. Opening and reading one never executes
    its code and never imports torch."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, path)

    @classmethod
    def create(
        cls,
        root: Path,
        *,
        name: str | None = None,
        exactly: bool = False,
        values: Mapping[str, Any],
        provenance: Mapping[str, str] | None = None,
        request: Mapping[str, Any] | None = None,
        selection: snapshot.Selection | None = None,
        fill: Callable[[Path], None] | None = None,
    ) -> PackageFolder:
        """Creates a new package; a name that exists gets a suffix, nothing is ever overwritten.

        Args:
            root: The save root; created if it does not exist.
            name: The folder's name; None: the time.
            exactly: Refuses a name that exists, instead of adding a suffix.
            values: All settings, interpolations unresolved (args.json).
            provenance: Which layer set which key.
            request: The content of request.json: kind, command line, description, …
            selection: The files of the project to copy; None: none.
            fill: Adds files to the folder before it becomes a package.

        Raises:
            Refused: The name exists, and ``exactly`` is set.
            OSError: The package cannot be written; what was created is removed again.
            Exception: Any error of ``fill``; what was created is removed again.
        """
        root.mkdir(parents=True, exist_ok=True)
        chosen = name or package_name.time_name(time.time())
        try:
            with (package_name.staged if exactly else package_name.unique)(root, chosen) as path:
                manifest = (
                    snapshot.copy(selection, path)
                    if selection
                    else {"files": {}, "links": {}, "left_out": []}
                )
                for folder in ("Checkpoints", "sessions", "records"):
                    (path / folder).mkdir()
                settings = sessions.to_json(dict(values))
                durable.write_new(path / "args.json", [settings])
                # A digest, because an edit by hand would make the package describe another run.
                own = {"args.json": {"size": len(settings), "sha256": hashlib.sha256(settings).hexdigest()}}
                durable.write_new(path / "provenance.json", [sessions.to_json(dict(provenance or {}))])
                durable.write_new(path / "manifest.json", [sessions.to_json({**manifest, "own": own})])
                (path / sessions.LOCK_NAME).touch()
                if fill is not None:
                    fill(path)
                durable.fsync_folder(path)  # once for all of them, before the name that makes it a package
                # Last: a folder without it is no package, so an interrupted creation is never taken for one.
                durable.write(
                    path / "request.json",
                    sessions.to_json({"format": FORMAT, "kind": PackageKind.TRAIN, **(request or {})}),
                )
                durable.fsync_folder(root)
        except OSError as error:
            if error.filename is None:
                error.filename = str(root / chosen)  # "No space left on device" alone does not name the disk
            raise
        return cls(root / chosen if exactly else path)

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Opens the package at ``path``.

        Raises:
            NotFound: The folder does not exist, or is not a package.
        """
        path = typed_path(path).absolute()
        is_begun = (path / "request.json").is_file()
        if is_begun and not (path / "args.json").is_file():
            fix = "take it from a copy of the package; `roost verify` checks all the rest"
            raise NotFound("the package lacks args.json, its settings", where=path, fix=fix)
        if not is_begun:
            if original_folder.is_original(path):
                raise original_folder.read_only_error(path)
            message = "the folder does not exist" if not path.is_dir() else "the folder is not a package"
            raise NotFound(
                message,
                received=str(path),
                fix="give the folder that `roost run` printed, or see `roost ls`",
            )
        return cls(path)

    def _load(self, name: str) -> dict[str, Any]:
        try:
            return dict(json.loads(safe_read.read(self.path / name)))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise NotFound(f"the package's {name} cannot be read: {error}", where=self.path) from error

    @property
    def request(self) -> dict[str, Any]:
        """The content of request.json: the request that created the package; never changes."""
        return self._load("request.json")

    @property
    def args(self) -> dict[str, Any]:
        """All settings as `run` merged them, interpolations unresolved; never changes."""
        return self._load("args.json")

    @property
    def manifest(self) -> dict[str, Any]:
        """Every copied file with its size and digest; links; what was left out, with the reason."""
        return self._load("manifest.json")

    def changed_files(self) -> list[str]:
        """Returns the copied files, possibly with args.json, that are missing or have other content now."""
        manifest = self.manifest
        return [
            *snapshot.changed_files(self.path, manifest),
            *snapshot.changed_files(self.path, {"files": manifest.get("own", {})}),
        ]

    def forced_changes(self) -> dict[str, str]:
        """Returns the changed files that sessions were forced to continue with (``--force``): the SHA-256
        that the newest of these sessions found, empty for a missing file."""
        found: dict[str, str] = {}
        for session in self.sessions():
            if session.is_effective(self.path / "records"):
                found |= session.request.changed
        return found

    @property
    def provenance(self) -> dict[str, str]:
        """Which layer set which key of args.json."""
        return self._load("provenance.json")

    @property
    def derived(self) -> dict[str, Any]:
        """The content of _package.json: tracks and inexactness as the worker last wrote them. Empty before
        the first save, and if the file is damaged, because the next save writes it again."""
        try:
            return self._load("_package.json")
        except NotFound:
            return {}

    def kept_ids(self) -> set[int]:
        """Returns the ids of the checkpoints that existed after the last save, according to _package.json."""
        derived = self.derived
        lists = [derived.get(key) for key in ("ckpt_slow", "ckpt_fast", "ckpt_consistent", "ckpt_best")]
        return {id for found in lists if isinstance(found, list) for id in found if isinstance(id, int)}

    @property
    def project(self) -> Path:
        """The project's folder when the newest session began, for ``${project}`` and for links; it may not
        exist any more."""
        requests = [self.request, *(session.request for session in self.sessions())]
        return Path(
            next((str(one["project"]) for one in reversed(requests) if one.get("project")), self.path)
        )

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "Checkpoints"

    @property
    def blackbox(self) -> Path:
        """The folder of the black boxes of failed steps; see `roost.package.results.black_box`."""
        return self.path / "blackbox"

    @property
    def model_summary(self) -> Path:
        """The file with the model summary, of a run that began with ``--initialize``."""
        return self.path / "_model.txt"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings in effect: args.json with the overrides of every session, in order.

        A session that failed before its first step (for example because its settings did not fit) changed
        nothing, see `Session.is_effective`. Each access reads the files anew.
        """
        return self.settings_until(None)

    def settings_until(self, session: int | None) -> dict[str, Any]:
        """Returns the settings that were in effect in a session.

        Args:
            session: The number of the session; None: the newest.
        """
        values = self.args
        for one in self.sessions():
            is_included = session is None or one.number <= session
            if is_included and one.is_effective(self.path / "records"):
                values = with_overrides(self, values, one.request.overrides)
        return values

    def records(self) -> records.Columns:
        """Returns the recorded history of all sessions, see `roost.package.records.fold`."""
        from roost.package import records

        return records.fold(self.path / "records")

    def store(self) -> CheckpointStore:
        """Returns the checkpoints, with the lineage that leads to the current state of the run.

        After ``continue -c K``, earlier checkpoints after K are not part of the lineage.
        """
        from roost.package.checkpoints.checkpoint_store import CheckpointStore

        branches = [
            session
            for session in self.sessions()
            if session.checkpoint is not None and session.is_effective(self.path / "records")
        ]
        found = checkpoint.read_manifests(self.checkpoints)
        unsaved = branches and all(manifest.session < branches[-1].number for manifest in found)
        return CheckpointStore(self.checkpoints, tip=branches[-1].checkpoint if unsaved else None)

    def describe(self, text: str) -> None:
        """Writes a marker file (DLNest) whose name describes the run, visible in a plain listing of the
        folder. It does not affect the run, so it may be added at any time.

        Raises:
            UsageError: The text cannot be used as a file name.
            OSError: The file cannot be written.
        """
        name = f"_desc: {package_name.folder_name(text)}"
        durable.write(self.path / name, text.encode(errors="surrogateescape") + b"\n")

    def write_derived(self, tracks: Mapping[str, list[int]], inexact: list[str]) -> None:
        """Writes _package.json, with the keys of DLNest. Only the process with the lock calls this."""
        body = {
            "format": FORMAT,
            "id": self.path.name,
            "kind": PackageKind.of(self.request),
            "prefix": checkpoint.PREFIX,
            "ckpt_slow": tracks["slow"],
            "ckpt_fast": tracks["fast"],
            "ckpt_consistent": tracks["held"],
            "ckpt_best": tracks["best"],
            "inexact": inexact,
        }
        durable.write(self.path / "_package.json", sessions.to_json(body))


def with_overrides(
    package: PackageFolder, values: Mapping[str, Any], overrides: Iterable[str]
) -> dict[str, Any]:
    """Returns settings of a package with the overrides of a command line applied, by its contract.

    Raises:
        ConfigError: An override is not valid.
    """
    # 25 ms with the YAML reader; a package of a command has no settings
    from roost.config.run_settings import Contract
    from roost.config.values.overrides import apply_overrides

    is_dlnest = PackageKind.of(package.request) is PackageKind.DLNEST
    contract = Contract.DLNEST if is_dlnest else Contract.NATIVE
    return apply_overrides(values, overrides, contract)
