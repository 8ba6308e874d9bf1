"""The folder of one run: complete, relocatable, and the only truth about it."""

# Not durable: makes the folders and the lock of a new package, removes a failed start

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from roost.base import durable, safe_read
from roost.base.errors import NotFound, Refused, RoostError
from roost.package import package_name, sessions, snapshot
from roost.package.checkpoints import checkpoint
from roost.package.sessions import Session

if TYPE_CHECKING:
    from roost.package import records
    from roost.package.checkpoints.checkpoint_store import CheckpointStore

FORMAT = 1
_LOCK_WAIT_SECONDS = 10.0
"""How long what a killed session left behind may hold the lock: torch's loader workers look every 5 s whether
their parent lives (roost's own die with it, but not on macOS, nor those of a project's own loader)."""


class PackageFolder:
    """A package on disk. Opening and reading one never executes its code and never imports torch."""

    def __init__(self, path: Path) -> None:
        self.path = path

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
        """Makes a new package; a taken name gets a suffix, nothing is ever overwritten.

        Args:
            root: The save root; made if need be.
            name: The folder's name; the time when None.
            exactly: A taken name is refused instead.
            values: All settings, interpolations unresolved (args.json).
            provenance: Which layer set which key.
            request: What was asked: kind, command line, description, … (request.json).
            selection: What to copy of the project; nothing when None.
            fill: Puts more into the folder, before that counts as a package.

        Raises:
            Refused: The name is taken.
            OSError: It cannot be written; what was made is removed again.
            Exception: What ``fill`` raises; likewise.
        """
        root.mkdir(parents=True, exist_ok=True)
        make = package_name.make_exactly if exactly else package_name.make_unique
        path = make(root, name or package_name.time_name(time.time()))
        try:
            manifest = (
                snapshot.copy(selection, path) if selection else {"files": {}, "links": {}, "left_out": []}
            )
            for folder in ("Checkpoints", "sessions", "records"):
                (path / folder).mkdir()
            settings = sessions.to_json(dict(values))
            durable.write_new(path / "args.json", [settings])
            # Whoever edits them by hand would make the package say what it did not do.
            own = {"args.json": {"size": len(settings), "sha256": hashlib.sha256(settings).hexdigest()}}
            durable.write_new(path / "provenance.json", [sessions.to_json(dict(provenance or {}))])
            durable.write_new(path / "manifest.json", [sessions.to_json({**manifest, "own": own})])
            (path / "lock").touch()
            if fill is not None:
                fill(path)
            durable.fsync_folder(path)  # once for all of them, before the name that makes it a package
            # Last: a folder without it is no package, so a creation that was cut off is never mistaken.
            durable.write(
                path / "request.json",
                sessions.to_json({"format": FORMAT, "kind": "train", **(request or {})}),
            )
            durable.fsync_folder(root)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return cls(path)

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Opens the package at ``path``.

        Raises:
            NotFound: There is none.
        """
        path = Path(path).expanduser().absolute()
        if not (path / "request.json").is_file() or not (path / "args.json").is_file():
            what = "there is no such folder" if not path.is_dir() else "the folder is no package"
            raise NotFound(
                what,
                received=str(path),
                fix="give the folder that `roost run` printed, or look with `roost ls`",
            )
        return cls(path)

    def _load(self, name: str) -> dict[str, Any]:
        try:
            return dict(json.loads(safe_read.read(self.path / name)))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise NotFound(f"the package's {name} cannot be read: {error}", where=self.path) from error

    @property
    def request(self) -> dict[str, Any]:
        """What was asked when the package was made; never changes."""
        return self._load("request.json")

    @property
    def args(self) -> dict[str, Any]:
        """All settings as `run` merged them, interpolations unresolved; never changes."""
        return self._load("args.json")

    @property
    def manifest(self) -> dict[str, Any]:
        """Every copied file with size and hash; what was left out and why; links."""
        return self._load("manifest.json")

    def changed(self) -> list[str]:
        """The copied files, and args.json, that are gone or hold something else than they did."""
        manifest = self.manifest
        return [
            *snapshot.changed_files(self.path, manifest),
            *snapshot.changed_files(self.path, {"files": manifest.get("own", {})}),
        ]

    def forced(self) -> dict[str, str]:
        """The changed files that sessions were forced to go on with, as the newest of them found them: their
        sha256, empty for one that was gone."""
        found: dict[str, str] = {}
        for session in self.sessions():
            if session.counts(self.path / "records"):
                found |= session.request.get("changed", {})
        return found

    @property
    def provenance(self) -> dict[str, str]:
        """Which layer set which key of args.json."""
        return self._load("provenance.json")

    @property
    def derived(self) -> dict[str, Any]:
        """_package.json: tracks and inexactness as the worker last wrote them; empty before, and when it is
        damaged, because the next save writes it anew."""
        try:
            return self._load("_package.json")
        except NotFound:
            return {}

    def kept(self) -> set[int]:
        """The ids of the checkpoints that stood after the last save, as _package.json tells."""
        derived = self.derived
        lists = [derived.get(key) for key in ("ckpt_slow", "ckpt_fast", "ckpt_consistent", "ckpt_best")]
        return {id for found in lists if isinstance(found, list) for id in found if isinstance(id, int)}

    @property
    def project(self) -> Path:
        """Where the project was when the newest session began, for ``${project}`` and for links; it may be
        gone."""
        asked = [self.request, *(session.request for session in self.sessions())]
        return Path(next((str(one["project"]) for one in reversed(asked) if one.get("project")), self.path))

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "Checkpoints"

    @property
    def blackbox(self) -> Path:
        """The folder of the steps that failed; see `roost.package.results.black_box`."""
        return self.path / "blackbox"

    @property
    def output(self) -> Path:
        """What the worker printed, as bytes."""
        return self.path / "_output.txt"

    @property
    def model_summary(self) -> Path:
        """The table of the model, of a run that began with ``--initialize``."""
        return self.path / "_model.txt"

    @property
    def progress(self) -> Path:
        """The mapped record of `roost.package.live_progress`."""
        return self.path / "progress"

    def settings(self, *, until: int | None = None) -> dict[str, Any]:
        """All settings in effect: args.json with the overrides of every session, in order.

        A session that failed before its first step (its settings did not fit, say) changed nothing, see
        `Session.counts`.

        Args:
            until: Those that were in effect in this session; now when None.
        """
        from roost.config import layers  # 25 ms with what reads YAML; a command has no settings

        values = self.args
        for session in self.sessions():
            is_of_then = until is None or session.number <= until
            if is_of_then and session.counts(self.path / "records"):
                values = layers.apply_overrides(values, session.request.get("overrides", []))
        return values

    def sessions(self) -> list[Session]:
        """All sessions, oldest first."""
        return sessions.read_all(self.path / "sessions")

    def state(self) -> str:
        """new, or the state of the newest session."""
        found = self.sessions()
        return found[-1].state if found else "new"

    def new_session(self, request: Mapping[str, Any], *, is_durable: bool = True) -> int:
        """Adds a session and gives its number: `sessions.write_request`. The caller holds the lock."""
        for folder in (self.path, self.path / "sessions", self.blackbox, *self.path.glob("profile/*")):
            if folder.is_dir():
                durable.sweep(folder)  # what a killed process had not finished writing
        return sessions.write_request(self.path / "sessions", dict(request), is_durable=is_durable)

    def lock(self) -> int:
        """Takes the package's lock; gives the descriptor that holds it until its last copy is closed.

        Raises:
            Refused: Somebody writes to this package.
        """
        fd = self._opened_lock()
        deadline = time.monotonic() + _LOCK_WAIT_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                # What a killed session left behind is still being taken down by the kernel: soon it is free.
                if self.state() in ("running", "starting") or time.monotonic() > deadline:
                    os.close(fd)
                    raise self._in_use() from None
                time.sleep(0.01)

    def _opened_lock(self) -> int:
        """Never through a link, and never waiting for the other end of a FIFO."""
        path = self.path / "lock"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise
            raise _lock_file_error(path) from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise _lock_file_error(path)
        return fd

    def _in_use(self) -> Refused:
        found = self.sessions()
        if not found:
            return Refused("the package is in use", where=self.path, fix="try again")
        record = found[-1].record or found[-1].request
        who = f"session {found[-1].number} (host {record.get('host')}, pid {record.get('pid')})"
        if found[-1].state not in ("running", "starting"):
            fix = "`roost continue` ends it; if it does not, `fuser lock` in the package names it"
            return Refused(
                f"the package is in use by a process that {who} left behind", where=self.path, fix=fix
            )
        fix = "watch it with `roost logs -f`, or end it with `roost stop`"
        if found[-1].is_python:
            who, fix = f"a Python program, {who}", "let it leave its `with` block, or end it"
        return Refused(f"the package is in use by {who}", where=self.path, fix=fix)

    def records(self) -> records.Columns:
        """The folded history of all sessions."""
        from roost.package import records

        return records.fold(self.path / "records")

    def store(self) -> CheckpointStore:
        """The checkpoints, and which of them lead to where the run is now.

        A later branch (``continue -c K``) hides what came after K before it.
        """
        from roost.package.checkpoints.checkpoint_store import CheckpointStore

        branches = [
            session
            for session in self.sessions()
            if session.checkpoint is not None and session.counts(self.path / "records")
        ]
        found = checkpoint.read_manifests(self.checkpoints)
        unsaved = branches and all(info.session < branches[-1].number for info in found)
        return CheckpointStore(self.checkpoints, tip=branches[-1].checkpoint if unsaved else None)

    def describe(self, text: str) -> None:
        """The marker file of document 000: an empty-handed look at the folder tells what the run is about. It
        changes nothing of the run, so it may be added at any time.

        Raises:
            UsageError: The text makes no file name.
            OSError: It cannot be written.
        """
        name = f"_desc: {package_name.folder_name(text)}"
        durable.write(self.path / name, text.encode(errors="surrogateescape") + b"\n")

    def write_derived(self, tracks: Mapping[str, list[int]], inexact: list[str]) -> None:
        """Writes _package.json, with document 000's keys. Only the worker calls this."""
        body = {
            "format": FORMAT,
            "id": self.path.name,
            "kind": self.request.get("kind", "train"),
            "prefix": checkpoint.PREFIX,
            "ckpt_slow": tracks["slow"],
            "ckpt_fast": tracks["fast"],
            "ckpt_consistent": tracks["held"],
            "ckpt_best": tracks["best"],
            "inexact": inexact,
        }
        durable.write(self.path / "_package.json", sessions.to_json(body))


def _lock_file_error(path: Path) -> RoostError:
    return RoostError("the package's lock is no plain file", where=path, fix="remove it: a new one is made")
