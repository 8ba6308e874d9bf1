"""``verify``: compares every byte of a package with what was written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roost.base.errors import CheckpointError, NotFound
from roost.operations import resolve
from roost.operations.reading import package_schema
from roost.operations.reading.package_schema import DamagedPackage
from roost.package import snapshot
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder


@dataclass(frozen=True)
class Finding:
    """The result for one item of a package."""

    what: str
    """checkpoint, code, records or settings."""
    name: str
    good: bool
    detail: str
    """A description of the item, or of its damage."""


def verify(package: Path | str) -> Iterator[Finding]:
    """Checks every checkpoint, copied file, record and setting. Changes nothing.

    Yields:
        A `Finding` for each damaged JSON file (or one for all, if they are good), for each copied file that
        has changed (or one for all), for the records, and for each checkpoint.

    Raises:
        NotFound: There is no such package.
    """
    opened = PackageFolder.open(resolve.find_package(package))
    damages = list(package_schema.find_damage(opened))
    yield from [_damage_finding(damage) for damage in damages] or [_verify_settings(opened)]
    if not any(damage.name == "manifest.json" for damage in damages):
        yield from _verify_code(opened)
    yield _verify_records(opened)
    ids = checkpoint.ids(opened.checkpoints) if opened.checkpoints.is_dir() else []
    for id in ids:
        yield _verify_checkpoint(checkpoint.checkpoint_folder(opened.checkpoints, id))
    if not damages:
        yield from _missing_checkpoints(opened, ids)


def _missing_checkpoints(package: PackageFolder, ids: list[int]) -> Iterator[Finding]:
    """Yields checkpoints that the worker kept and that are missing, unless a running worker may remove
    them."""
    if package.state() not in ("starting", "running"):
        for id in sorted(package.kept_ids() - set(ids)):
            yield Finding("checkpoint", f"{checkpoint.PREFIX}{id}.ckpt", False, "is gone")


def _verify_checkpoint(path: Path) -> Finding:
    try:
        info = checkpoint.verify(path)
    except (CheckpointError, NotFound, OSError) as error:
        if not path.exists():
            return Finding("checkpoint", path.name, True, "its run removed it just now")
        cause = f"cannot be read: {error}" if isinstance(error, OSError) else error.message
        return Finding("checkpoint", path.name, False, cause.removeprefix(f"{path.name}: "))
    return Finding(
        "checkpoint", path.name, True, f"step {info.step}, {len(info.files)} files, {info.size_bytes:,} bytes"
    )


def _verify_code(package: PackageFolder) -> Iterator[Finding]:
    manifest = package.manifest
    changed, forced = package.changed_files(), package.forced_changes()
    for name in changed:
        digest = snapshot.file_digest(package.path / name)
        good = forced.get(name) == digest
        detail = "has changed since it was copied" if digest else "is gone"
        known = ", and a session was forced to continue with it; recorded as inexact" if good else ""
        yield Finding("code", package_schema.printable(name), good, detail + known)
    if not changed:
        yield Finding("code", "", True, f"{len(manifest['files'])} files as they were copied")


def _verify_records(package: PackageFolder) -> Finding:
    columns = package.records()
    # A session that was killed while it wrote leaves at most one torn line; more of them are damage.
    good = columns.torn <= len(package.sessions())
    torn = f", {columns.torn} torn lines" if columns.torn else ""
    return Finding("records", "", good, f"{len(columns.rows)} rows{torn}")


def _damage_finding(damage: DamagedPackage) -> Finding:
    return Finding("settings", damage.name, False, damage.cause)


def _verify_settings(package: PackageFolder) -> Finding:
    try:
        package_schema.settings(package)
    except DamagedPackage as damage:
        return _damage_finding(damage)
    number = len(package.sessions())
    return Finding("settings", "", True, f"{number} session{'s' * (number != 1)}")
