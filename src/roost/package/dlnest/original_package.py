"""Packages that DLNest's own programs wrote: read, and never changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from roost.base.errors import NotFound
from roost.base.text.typed_path import typed_path
from roost.package.dlnest.original_folder import is_original, read_json
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.sessions import Session

_FILE = re.compile(r"(?:state|epoch)_(\d+)\.ckpt")
_TRACKS = ("ckpt_slow", "ckpt_fast", "ckpt_consistent")


class OriginalPackage(PackageFolder):
    """A package of DLNest's own programs."""

    @classmethod
    def open(cls, path: Path | str) -> OriginalPackage:
        """Opens the package at ``path``.

        Raises:
            NotFound: There is no such package.
        """
        path = typed_path(path).absolute()
        if not is_original(path):
            raise NotFound("the folder is not a package of DLNest", received=str(path))
        return cls(path)

    @property
    def request(self) -> dict[str, Any]:
        """The kind, and the project's folder: DLNest puts ``Saves`` into it."""
        return {"kind": PackageKind.DLNEST, "project": str(self.path.parent.parent)}

    @property
    def manifest(self) -> dict[str, Any]:
        """Returns no files: DLNest does not list them."""
        return {"files": {}, "links": {}, "left_out": []}

    @property
    def provenance(self) -> dict[str, str]:
        """Returns nothing: DLNest does not store where a setting was set."""
        return {}

    def sessions(self) -> list[Session]:
        """Returns nothing: DLNest records no sessions."""
        return []

    def files(self) -> dict[int, Path]:
        """Returns the checkpoints by their ids, ascending; of 0.2 the id is the epoch."""
        if not self.checkpoints.is_dir():
            return {}
        found = {
            int(match[1]): path
            for path in self.checkpoints.iterdir()
            if (match := _FILE.fullmatch(path.name)) and path.is_file()
        }
        return dict(sorted(found.items()))

    def notes(self) -> list[str]:
        """Returns a line for each false statement of the package's own files."""
        derived, files = read_json(self.path / "_package.json") or {}, self.files()
        tracks = [one for key in _TRACKS if isinstance(one := derived.get(key), list)]
        listed = {id for one in tracks for id in one if type(id) is int}
        found = []
        if missing := sorted(listed - files.keys()):
            found.append(f"_package.json names checkpoints that do not exist: {', '.join(map(str, missing))}")
        root = self.args.get("root_file_path")
        if isinstance(root, str) and Path(root) != self.path and not Path(root).is_dir():
            found.append(
                f"root_file_path {root} does not exist: the package was moved, and is read from here"
            )
        return found

    def describe_content(self) -> str:
        """Returns what the package is, in a line."""
        files, args = self.files(), self.args
        name = args.get("runner_name", args.get("model_name"))
        ids = ", ".join(map(str, files)) or "none"
        return "; ".join([f"a package of DLNest: {name}, checkpoints: {ids}", *self.notes()])

    def file(self, id: int | None) -> tuple[int, Path]:
        """Returns checkpoint ``id``, or the newest one.

        Raises:
            NotFound: There is no such checkpoint, or none at all.
        """
        files = self.files()
        if not files:
            raise NotFound("the package has no checkpoint", where=self.path)
        chosen = max(files) if id is None else id
        if chosen not in files:
            have = ", ".join(map(str, files))
            raise NotFound(f"there is no checkpoint {id}; there are: {have}", where=self.path)
        return chosen, files[chosen]


def open_any(path: Path | str) -> PackageFolder:
    """Opens a package of roost, or of DLNest's own programs.

    Raises:
        NotFound: It is neither.
    """
    found = typed_path(path)
    return OriginalPackage.open(found) if is_original(found) else PackageFolder.open(found)
