"""Small packages, for tests of their remote copies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from roost.config.values.store_url import parse_url
from roost.package import records
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder
from roost.package.remote.remote_copy import RemoteCopy
from roost.package.remote.upload import Uploader, UploadOptions


def make(root: Path, name: str = "A", **settings: Any) -> PackageFolder:
    """A package with one session, without a checkpoint."""
    package = PackageFolder.create(
        root, name=name, values={"max_steps": 9, **settings}, request={"created": os.urandom(4).hex()}
    )
    package.new_session({"kind": "train", "overrides": [], "token": os.urandom(4).hex()})
    package.output.write_bytes(b"it begins\n")
    writer = records.RecordsWriter(package.path / "records" / "1.jsonl", session=1, start_step=0)
    writer.close()
    return package


def save(package: PackageFolder, id: int, *, data: bytes = b"", **fields: Any) -> None:
    """Adds a row and a checkpoint of step ``10 * id``; ``data`` becomes a part of its state."""
    path = package.path / "records" / "1.jsonl"
    with path.open("ab") as file:
        file.write(b'{"step":%d,"epoch":0,"time":1.0,"train/loss":0.5}\n' % (10 * id))
    state: dict[str, Any] = {"id": id, "text": data.decode("latin-1")}
    manifest = Manifest(id=id, step=10 * id, epoch=0, batch=0, line=[(0, id)], **fields)
    checkpoint.write(package.checkpoints, {"model": state}, manifest)


def copy_of(store: Path, name: str = "A") -> RemoteCopy:
    """The remote copy of a package in a folder."""
    return RemoteCopy.at(parse_url(str(store)), name)


def uploader(
    package: PackageFolder,
    store: Path,
    options: UploadOptions = UploadOptions(),  # noqa: B008
    *,
    store_id: str | None = None,
) -> Uploader:
    """An uploader to a folder."""
    return Uploader(package, copy_of(store, package.path.name), options, store_id=store_id)


def contents(folder: Path) -> dict[str, bytes | str]:
    """The files of a folder with their bytes; of links the target."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
        elif not any(path.iterdir()):
            found[f"{name}/"] = b""
    return found
