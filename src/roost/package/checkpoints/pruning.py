"""What a user has removed from a package on purpose, so that its other readers know why it is not there.

::

    _pruned.json    {"format": 1, "prunings": [{"time": …, "rule": "--keep best,last", …}], "sha256": …}

The file is written before anything is removed (write-ahead): a pruning that is killed is finished by the next
one, and explained until then. Each pruning names the checkpoints by the digests of their manifests, because a
later session may use their ids again.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from roost.base import durable
from roost.base.errors import CheckpointError, NotFound, Refused
from roost.package import sessions
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder
from roost.package.seals import seal
from roost.package.seals.seal import BrokenSeal

NAME = "_pruned.json"
FORMAT = 1
MODEL_PART = "model"
"""The part of a trainer's checkpoint that has the weights; the others have what a session continues with."""
_DERIVED = "_package.json"
_NAME = re.compile(r"(?:Checkpoints|blackbox)/state_[0-9]+\.ckpt")
_TRACKS = ("ckpt_slow", "ckpt_fast", "ckpt_consistent", "ckpt_best")


class RecordedFile(msgspec.Struct, frozen=True):
    """The size of a file, and its SHA-256 where it is known."""

    bytes: int
    sha256: str | None


class Pruning(msgspec.Struct, frozen=True, kw_only=True):
    """A removal of parts of a package, by one command."""

    time: float
    rule: str
    """The options of `roost prune`."""
    session: int
    """The newest session at that time; 0 without one."""
    removed: dict[str, str] = {}
    """The checkpoints that were removed, relative to the package, with the SHA-256 of their manifests; empty
    where that could not be read."""
    reduced: dict[str, str] = {}
    """The checkpoints of which only the weights were kept, likewise."""
    files: dict[str, RecordedFile] = {}
    """The files that were removed, relative to the package, as the manifests of their checkpoints name
    them."""
    rewritten: dict[str, RecordedFile] = {}
    """The files that were written again, as they are since."""

    @property
    def num_bytes(self) -> int:
        """The size of the files that were removed."""
        return sum(one.bytes for one in self.files.values())


class _File(msgspec.Struct):
    format: int
    prunings: list[Pruning]


def read_all(package: Path) -> list[Pruning]:
    """Returns the prunings of a package, the oldest first.

    Raises:
        BrokenSeal: The file is not as it was written.
    """
    try:
        body = seal.read_body(package / NAME)
    except FileNotFoundError:
        return []
    try:
        found = msgspec.convert(body, _File)
    except msgspec.ValidationError as error:
        raise BrokenSeal(f"it cannot be read: {error}", where=package / NAME) from error
    if found.format != FORMAT:
        raise BrokenSeal(f"it has format {found.format}, of a newer roost", where=package / NAME)
    # What it names is removed; a package may come from anywhere, and any program can write such a digest.
    for name in (name for one in found.prunings for name in (*one.removed, *one.reduced)):
        if _NAME.fullmatch(name) is None:
            raise BrokenSeal("it names what is no checkpoint", where=package / NAME, received=name)
    return found.prunings


def plan(
    package: PackageFolder, *, rule: str, kept: Sequence[int], weights_only: bool, black_boxes: bool
) -> Pruning:
    """Returns a pruning that keeps some checkpoints, and of these only the weights if requested; nothing is
    changed.

    Args:
        package: The package.
        rule: The options that were given.
        kept: The ids of the checkpoints to keep.
        weights_only: Whether only the weights of these are kept.
        black_boxes: Whether its black boxes are removed, too.
    """
    removed: dict[str, str] = {}
    reduced: dict[str, str] = {}
    files: dict[str, RecordedFile] = {}
    folders = [package.checkpoints, *([package.blackbox] if black_boxes else [])]
    for path in (one for folder in folders for one in _checkpoints(folder)):
        name = path.relative_to(package.path).as_posix()
        manifest = _manifest(path)
        is_kept = path.parent == package.checkpoints and checkpoint.checkpoint_id(path) in kept
        gone = _files(path, manifest)
        if is_kept:
            gone = {file: one for file, one in gone.items() if _is_dropped(file)} if weights_only else {}
            if gone:
                reduced[name] = checkpoint.manifest_digest(path)
        else:
            removed[name] = checkpoint.manifest_digest(path) if manifest is not None else ""
        files |= {f"{name}/{file}": one for file, one in gone.items()}
    found = package.sessions()
    return Pruning(
        time=round(time.time(), 3),
        rule=rule,
        session=found[-1].number if found else 0,
        removed=removed,
        reduced=reduced,
        files=files,
        rewritten=_rewritten(package, removed),
    )


def _checkpoints(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [checkpoint.checkpoint_folder(folder, id) for id in checkpoint.ids(folder)]


def _manifest(path: Path) -> Manifest | None:
    with contextlib.suppress(CheckpointError, NotFound):
        return checkpoint.read_manifest(path)
    return None


def _files(path: Path, manifest: Manifest | None) -> dict[str, RecordedFile]:
    """Returns the files of a checkpoint without its manifest; of a damaged one those that are there."""
    if manifest is None:
        with contextlib.suppress(OSError), os.scandir(path) as listed:
            return {one.name: RecordedFile(one.stat(follow_symlinks=False).st_size, None) for one in listed}
        return {}
    return {
        name: RecordedFile(int(entry.get("bytes", 0)), entry.get("sha256"))
        for name, entry in manifest.files.items()
    }


def _is_dropped(file: str) -> bool:
    return file.partition(".")[0] != MODEL_PART


def _rewritten(package: PackageFolder, removed: Mapping[str, str]) -> dict[str, RecordedFile]:
    import hashlib

    body = _without(package.derived, removed)
    return {_DERIVED: RecordedFile(len(body), hashlib.sha256(body).hexdigest())} if body else {}


def _without(derived: Mapping[str, Any], removed: Mapping[str, str]) -> bytes:
    """Returns _package.json without the removed checkpoints; empty if there is none to write."""
    gone = {checkpoint.checkpoint_id(Path(name)) for name in removed if name.startswith("Checkpoints/")}
    lists = {key: derived[key] for key in _TRACKS if isinstance(derived.get(key), list)}
    if not gone.intersection(id for found in lists.values() for id in found if isinstance(id, int)):
        return b""
    return sessions.to_json(
        {**derived, **{key: [id for id in found if id not in gone] for key, found in lists.items()}}
    )


def carry_out(package: PackageFolder, new: Pruning) -> None:
    """Records a pruning, and removes what it names. The caller holds the package's lock.

    Raises:
        BrokenSeal: The file of earlier prunings is not as it was written.
        OSError: A file cannot be written or removed: nothing was removed, or the rest of it is removed when
            the package is pruned again.
    """
    body = {"format": FORMAT, "prunings": msgspec.to_builtins([*read_all(package.path), new])}
    durable.write(package.path / NAME, seal.encode(body))
    _finish(package, new)


def finish_interrupted(package: PackageFolder) -> None:
    """Finishes prunings that were killed, with their temporary files. The caller holds the package's
    lock. Raises the errors of `carry_out`."""
    for folder in (package.path, package.checkpoints, package.blackbox):
        if folder.is_dir():
            durable.sweep(folder)
    for one in in_effect(package):
        if not is_finished(package, one):
            _finish(package, one)


def in_effect(package: PackageFolder) -> list[Pruning]:
    """Returns the prunings after which no session began. A later session has written which checkpoints there
    are, and may have continued from one that a killed pruning left."""
    found = package.sessions()
    newest = found[-1].number if found else 0
    return [one for one in read_all(package.path) if one.session == newest]


def is_finished(package: PackageFolder, one: Pruning) -> bool:
    """Whether all that a pruning names is removed."""
    is_left = any(_is_same(package.path / name, digest) for name, digest in one.removed.items())
    return not is_left and not any(
        (package.path / file).exists() for file in one.files if file.rpartition("/")[0] in one.reduced
    )


def _finish(package: PackageFolder, one: Pruning) -> None:
    for name, digest in one.reduced.items():
        path = package.path / name
        if path.is_symlink():
            continue  # its files are another package's
        if _is_same(path, digest):
            checkpoint.rewrite_manifest(path, keep=lambda file: not _is_dropped(file))
        listed = checkpoint.read_manifest(path).files if path.is_dir() else {}
        if path.is_dir():
            durable.sweep(path)  # a manifest that was not renamed
        for file in one.files:
            folder, _, short = file.rpartition("/")
            if folder == name and short not in listed and path.is_dir():
                durable.remove_file(path / short)
    if body := _without(package.derived, one.removed):
        durable.write(package.path / _DERIVED, body)
    for name, digest in one.removed.items():
        if _is_same(package.path / name, digest):
            durable.remove_folder(package.path / name)


def _is_same(path: Path, digest: str) -> bool:
    """Whether a checkpoint exists, and is the one of which this is the digest of the manifest."""
    if not path.is_dir():
        return False
    manifest = _manifest(path)
    return (checkpoint.manifest_digest(path) if manifest is not None else "") == digest


def require_training_state(package: PackageFolder, id: int | None) -> None:
    """Checks that a session can continue from a checkpoint as far as prunings have left it.

    Args:
        package: The package.
        id: The checkpoint; None: the newest one.

    Raises:
        BrokenSeal: The file of prunings is not as it was written.
        Refused: A pruning has removed all checkpoints, or what this one had besides its weights.
    """
    found = read_all(package.path)
    if not found:
        return
    path = quote(str(package.path))
    if not checkpoint.ids(package.checkpoints):
        raise Refused(
            f"its checkpoints were removed on {format_day(found[-1])}, by `roost prune {found[-1].rule}`",
            where=package.path,
            fix=f"begin the run again in a new package: roost rerun {path}",
        )
    line = package.store().lineage()
    manifest = (line[-1] if line else None) if id is None else _manifest(package.store().path(id))
    if manifest is None:
        return
    name = f"{package.checkpoints.name}/{checkpoint.checkpoint_folder(package.checkpoints, manifest.id).name}"
    by = next((one for one in found if name in one.reduced), None)
    if by is not None and checkpoint.part_names(manifest) == [MODEL_PART]:
        raise Refused(
            f"checkpoint {manifest.id} has its weights only: the rest was removed on {format_day(by)}, by "
            f"`roost prune {by.rule}`",
            where=package.path,
            fix=f"start a new run with these weights: roost run CONFIG init_from={path}",
        )


def format_day(one: Pruning) -> str:
    """Returns the date of a pruning."""
    return time.strftime("%Y-%m-%d", time.localtime(one.time))


def descriptions(package: PackageFolder) -> Iterator[str]:
    """Yields a line about each pruning.

    Raises:
        BrokenSeal: The file of prunings is not as it was written.
    """
    from roost.base.text.byte_sizes import format_bytes

    unfinished = [one for one in in_effect(package) if not is_finished(package, one)]
    for one in read_all(package.path):
        parts = []
        if one.removed:
            parts.append(f"{_count(one.removed)} removed")
        if one.reduced:
            parts.append(f"{_count(one.reduced)} reduced to the weights")
        what = f"{' and '.join(parts) or 'nothing'}, {format_bytes(one.num_bytes)}"
        end = "; interrupted: `roost prune` on it finishes that" if one in unfinished else ""
        yield f"on {format_day(one)}, by {one.rule}: {what}{end}"


def _count(names: Mapping[str, str]) -> str:
    return "1 checkpoint" if len(names) == 1 else f"{len(names)} checkpoints"
