"""The format of a checkpoint: a folder of state files with a manifest of their digests, committed by one
rename.

torch.load and safetensors load flipped bits silently. Here a checkpoint is read only after every byte,
including those of the manifest, was verified.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from roost.base import durable, safe_read
from roost.base.errors import CheckpointError, Damaged, NotFound
from roost.base.system import cpu_cores

if TYPE_CHECKING:
    from roost.package.checkpoints.pickled_values import Pickles

FORMAT = 1
PREFIX = "state_"
_PIECE_BYTES = 1 << 22
_LARGE_BYTES = 1 << 24
_FOLDER = re.compile(re.escape(PREFIX) + r"(\d+)\.ckpt")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of MANIFEST.json. ``id`` counts saves; ``parent`` is the id of the checkpoint from which
    the run continued."""

    format: int = FORMAT
    id: int
    step: int
    epoch: int
    batch: int
    parent: int | None = None
    line: list[tuple[int, int]] = []
    """The lineage as ranges of ids, including this one; parents need not exist any more."""
    session: int = 0
    reason: str = "scheduled"
    """start, scheduled, best, held, requested, signal or final."""
    held: bool = False
    scheduled: int | None = None
    """The number of this scheduled save, from 0; None for other saves. The slow track counts these."""
    metrics: dict[str, float] = {}
    """The metrics measured at exactly this step."""
    nonfinite: dict[str, str] = {}
    """Used in the file only, for metrics that are NaN or infinite, which JSON cannot represent."""
    ranks: int = 1
    time: float = 0.0
    inexact: list[str] = []
    files: dict[str, dict[str, Any]] = {}

    @property
    def size_bytes(self) -> int:
        """The size of all files of all ranks and parts, without the manifest."""
        return sum(int(entry.get("bytes", 0)) for entry in self.files.values())


def checkpoint_folder(folder: Path, id: int) -> Path:
    """Returns the path of checkpoint ``id`` in a folder ``Checkpoints``, whether or not it exists."""
    return folder / f"{PREFIX}{id}.ckpt"


def checkpoint_id(path: Path) -> int:
    """Returns the id of a checkpoint by its path."""
    return int(path.name.removeprefix(PREFIX).removesuffix(".ckpt"))


def files(folder: Path) -> dict[int, Path]:
    """Returns the files with the name of a checkpoint, by id: DLNest's own programs write such."""
    with os.scandir(folder) as entries:
        found = [(_FOLDER.fullmatch(entry.name), entry) for entry in entries]
        return {int(match[1]): Path(entry.path) for match, entry in found if match and entry.is_file()}


def ids(folder: Path) -> list[int]:
    """Returns the ids of the committed checkpoints, ascending, without verifying them. A file of such a name
    is one of DLNest, unless it is empty."""
    with os.scandir(folder) as entries:
        found = [(_FOLDER.fullmatch(entry.name), entry) for entry in entries]
        return sorted(
            int(match[1]) for match, entry in found if match and (entry.is_dir() or _is_empty(entry))
        )


def _is_empty(entry: os.DirEntry[str]) -> bool:
    return entry.stat(follow_symlinks=False).st_size == 0


def set_aside_names(folder: Path) -> list[str]:
    """Returns the names of the damaged checkpoints that were set aside (renamed)."""
    return sorted(
        path.name for path in folder.iterdir() if _FOLDER.match(path.name) and ".corrupt" in path.name
    )


def next_id(folder: Path) -> int:
    """Returns one more than the highest id used here so far, including checkpoints that were set aside."""
    used = [int(match[1]) for path in folder.iterdir() if (match := _FOLDER.match(path.name))]
    return max(used, default=-1) + 1


def lineage_after(parent: Manifest | None, id: int) -> list[tuple[int, int]]:
    """Returns the lineage (`Manifest.line`) of checkpoint ``id`` with this parent."""
    if parent is None:
        return [(id, id)]
    *older, (first, last) = parent.line
    return [*older, (first, id)] if id == last + 1 else [*older, (first, last), (id, id)]


def _encode(manifest: Manifest) -> bytes:
    nonfinite = {name: repr(value) for name, value in manifest.metrics.items() if not math.isfinite(value)}
    finite = {name: value for name, value in manifest.metrics.items() if name not in nonfinite}
    return _sealed(
        msgspec.to_builtins(msgspec.structs.replace(manifest, metrics=finite, nonfinite=nonfinite))
    )


def _sealed(body: dict[str, Any]) -> bytes:
    """The JSON of ``body`` with the SHA-256 of its compact form as the last key."""
    digest = hashlib.sha256(msgspec.json.encode(body)).hexdigest()
    return msgspec.json.format(msgspec.json.encode({**body, "sha256": digest}), indent=2) + b"\n"


def _decode(data: bytes) -> Manifest:
    """The manifest of these bytes. The digest works alike in every format, so that an older roost can
    distinguish a newer checkpoint from a damaged one."""
    try:
        body = msgspec.json.decode(data, type=dict[str, Any])
        body.pop("sha256", None)
        whole = _sealed(body) == data  # every byte counts, white space too
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise Damaged(f"its MANIFEST.json cannot be read: {error}") from error
    if not whole:
        raise Damaged("its MANIFEST.json is damaged: its digest is not the one that was written")
    format = body.get("format", FORMAT)
    if format != FORMAT:
        raise CheckpointError(
            f"it has format {format}", fix=f"update roost: this version reads format {FORMAT}"
        )
    try:
        manifest = msgspec.convert(body, type=Manifest)
        metrics = {**manifest.metrics, **{name: float(text) for name, text in manifest.nonfinite.items()}}
    except ValueError as error:
        raise CheckpointError(f"its MANIFEST.json has invalid content: {error}") from error
    return msgspec.structs.replace(manifest, metrics=metrics, nonfinite={})


def write(folder: Path, trees: Mapping[str, Any], manifest: Manifest) -> Manifest:
    """Writes and commits one checkpoint durably. If this raises, nothing has changed.

    Args:
        folder: The package's ``Checkpoints``.
        trees: A state (see `roost.base.state_tree`) per name; each becomes ``<name>.json`` and, with tensors,
            ``<name>.safetensors``.
        manifest: The manifest without ``files``, which is filled in.

    Returns:
        The complete manifest.

    Raises:
        OSError: No space, an I/O error, …; the partial folder is removed.
        CheckpointError: A state contains something that cannot be saved.
    """
    from roost.package.checkpoints import part_files  # NumPy, 0.1 s, which readers of manifests save

    with staged_folder(checkpoint_folder(folder, manifest.id)) as staging:
        manifest = msgspec.structs.replace(manifest, files=part_files.write(staging, part_files.pack(trees)))
        write_manifest(staging, manifest)
    return manifest


def write_manifest(staging: Path, manifest: Manifest) -> None:
    """Writes the manifest, the last file of a checkpoint."""
    durable.write_new(staging / "MANIFEST.json", [_encode(manifest)])


def rewrite_manifest(path: Path, *, keep: Callable[[str], bool]) -> None:
    """Replaces the manifest of a checkpoint by one with a part of its files, in one durable step. The caller
    removes the other files.

    Raises:
        CheckpointError, NotFound, OSError: As `read_manifest`; or it cannot be written.
    """
    manifest = read_manifest(path)
    files = {name: entry for name, entry in manifest.files.items() if keep(name)}
    durable.write(path / "MANIFEST.json", _encode(msgspec.structs.replace(manifest, files=files)))


@contextmanager
def staged_folder(final: Path) -> Iterator[Path]:
    """Gives a temporary folder for a checkpoint's files; renames it to ``final`` at the end, and removes it
    after an error."""
    staging = durable.make_staging_folder(final)
    try:
        yield staging
        durable.commit_folder(staging, final)
    except BaseException:
        if staging.exists():
            durable.discard(staging)
        raise


def read_manifest(path: Path) -> Manifest:
    """Reads a checkpoint's manifest only.

    Raises:
        NotFound: The checkpoint does not exist.
        Damaged: The manifest is missing, or differs from what was written.
        CheckpointError: A newer roost has written it.
        OSError: It could not be read, which does not mean that it is damaged.
    """
    if not path.exists():
        raise NotFound("the checkpoint does not exist", received=str(path))
    try:
        _plain_file_size(path, "MANIFEST.json", at_most=safe_read.MAX_SMALL_FILE_BYTES)
        return _decode(bytes(safe_read.read(path / "MANIFEST.json")))
    except CheckpointError as error:
        raise type(error)(f"{path.name}: {error.message}", fix=error.fix) from error


def _plain_file_size(path: Path, name: str, *, at_most: float = math.inf) -> int:
    """The size of a plain file of a checkpoint. Other errors of the system (no permission, no descriptor
    left, an I/O error, a file server that does not answer) are raised unchanged: they are not damage."""
    try:
        found = (path / name).stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Damaged(f"its {name} cannot be read: it is missing") from error
    if not stat.S_ISREG(found.st_mode) or found.st_size > at_most:
        raise Damaged(f"its {name} cannot be read: it is not a plain file, or too large")
    return found.st_size


def read_manifests(folder: Path) -> list[Manifest]:
    """Returns the readable manifests of all checkpoints, by ascending id."""
    found = []
    for id in ids(folder):
        try:
            found.append(read_manifest(checkpoint_folder(folder, id)))
        except (CheckpointError, NotFound, FileNotFoundError):
            continue  # damaged (`verify` reports that), or removed by the run meanwhile
    return found


def _checked_size(path: Path, name: str, entry: Mapping[str, Any]) -> int:
    if Path(name).name != name or "\0" in name:
        raise CheckpointError(
            f"{path.name}: its MANIFEST.json names {name!r}, which cannot be one of its files"
        )
    try:
        size = _plain_file_size(path, name)
    except Damaged as error:
        raise Damaged(f"{path.name}: {error.message}") from error
    if size != entry.get("bytes"):
        raise Damaged(f"{path.name}: {name} has {size} bytes instead of {entry.get('bytes')}")
    return size


def _digest_error(path: Path, name: str) -> Damaged:
    return Damaged(f"{path.name}: {name} is damaged: its digest is not the one that was written")


def _checked_bytes(
    path: Path, name: str, entry: Mapping[str, Any], *, is_kept: bool = False
) -> memoryview[Any] | None:
    """Compares a file with its digest; returns its bytes if ``is_kept``, else None."""
    size = _checked_size(path, name, entry)
    file, data = path / name, None
    if is_kept:
        data, digest = safe_read.read_hashed(file, max_bytes=size)
    else:
        digest = safe_read.sha256(file)
    if digest != entry.get("sha256"):
        raise _digest_error(path, name)
    return data


def verify(path: Path) -> Manifest:
    """Compares every file with its digest, without loading it.

    Raises:
        NotFound: The checkpoint does not exist.
        Damaged: A file is missing, or differs from what was written.
        CheckpointError: A newer roost has written it.
        OSError: It could not be read, which does not mean that it is damaged.
    """
    manifest = read_manifest(path)
    for name, entry in manifest.files.items():
        _checked_bytes(path, name, entry)
    return manifest


def part_names(manifest: Manifest) -> list[str]:
    """Returns the names of the states in a checkpoint."""
    return [name.removesuffix(".json") for name in manifest.files if name.endswith(".json")]


def _tensor_files(manifest: Manifest, part: str) -> list[str]:
    """The files with the tensors of a part: the file of whole tensors, then those of each rank's shards."""
    found = [f"{part}.safetensors", *(f"{part}.shard-{rank}.safetensors" for rank in range(manifest.ranks))]
    return [name for name in found if name in manifest.files]


def tensor_digest(manifest: Manifest, part: str) -> tuple[str | None, int]:
    """Returns a digest of the tensors of a part, and their size in bytes; None and 0 if it has no tensors."""
    entries = [manifest.files[name] for name in _tensor_files(manifest, part)]
    size = sum(int(entry.get("bytes", 0)) for entry in entries)
    digests = [str(entry.get("sha256", "")) for entry in entries]
    if len(digests) > 1:
        return hashlib.sha256("".join(digests).encode()).hexdigest(), size
    return (digests[0] if digests else None), size


def _read_files(
    path: Path, manifest: Manifest, needed: Sequence[str], others: Iterable[str]
) -> dict[str, memoryview[Any]]:
    """The bytes of the files ``needed``; these and ``others`` are compared with their digests, for large
    checkpoints on all cores, as hashing takes longer than reading."""

    def check(name: str) -> memoryview[Any] | None:
        return _checked_bytes(path, name, manifest.files[name], is_kept=name in needed)

    names = [*needed, *others]
    if len(names) < 2 or manifest.size_bytes < _LARGE_BYTES:
        found = [check(name) for name in names]
    else:
        from concurrent.futures import ThreadPoolExecutor  # 5 ms, which a list of packages saves

        with ThreadPoolExecutor(min(len(names), cpu_cores.usable_cores())) as pool:
            found = list(pool.map(check, names))
    return {name: data for name, data in zip(names, found, strict=True) if data is not None}


def read(
    path: Path,
    *,
    only: Iterable[str] | None = None,
    to: Literal["torch", "numpy"] = "torch",
    device: str = "cpu",
    verify_all: bool = False,
    pickles: Pickles | None = None,
) -> tuple[Manifest, dict[str, Any]]:
    """Returns the manifest and the states by name, after comparing each file with its digest.

    Large tensors of one file share memory, which exists as long as one of them: clone a tensor to keep it
    without the others.

    Args:
        path: The checkpoint's folder.
        only: Names of the states to read; None: all.
        verify_all: Also verifies the files of the other states, and ignores names that the checkpoint lacks.
        to: The type of the tensors; "numpy" does not need torch.
        device: The device of torch's tensors.
        pickles: Which pickles of a project's values are read, which runs code; None: none, and in the place
            of each value is a `roost.base.state_tree.Unread`.

    Raises:
        NotFound: The checkpoint does not exist.
        Damaged: A file is missing, or differs from what was written.
        CheckpointError: The checkpoint is intact, but this roost or this torch cannot read it, or it has
            a pickle that ``pickles`` does not accept.
        OSError: It could not be read, which does not mean that it is damaged.
        RuntimeError: The device is full, or does not exist.
    """
    from roost.base import safetensors_format, state_tree
    from roost.package.checkpoints.pickled_values import SUFFIX

    manifest = read_manifest(path)
    names = part_names(manifest)
    requested = names if only is None else [name for name in only if name in names or not verify_all]
    if missing := [name for name in requested if name not in names]:
        raise CheckpointError(f"{path.name} has no part {missing[0]!r}; its parts are {', '.join(names)}")
    files = {name: [f"{name}.json", *_tensor_files(manifest, name)] for name in requested}
    pickled = [] if pickles is None else [f"{name}{SUFFIX}" for name in requested]
    pickled = [file for file in pickled if file in manifest.files]
    needed = [*(file for found in files.values() for file in found), *pickled]
    contents = _read_files(path, manifest, needed, manifest.files.keys() - needed if verify_all else ())
    states = {}
    for name, [skeleton, *others] in files.items():
        text, stored = contents.pop(skeleton), [contents.pop(file) for file in others]
        pickle = contents.pop(f"{name}{SUFFIX}", None)
        values = None
        if pickle is not None and pickles is not None:
            values = _unpickle(path, manifest, f"{name}{SUFFIX}", pickle, pickles, device)
        try:
            leaves = safetensors_format.JoinedLeaves([safetensors_format.parse(data) for data in stored])
            skeleton_tree = json.loads(bytes(text))
            states[name] = state_tree.unpack(skeleton_tree, leaves, to=to, may_view=True, others=values)
        # The digest is right, so these bytes were written: by a newer roost, or by another program.
        except (CheckpointError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{path.name}: {name} cannot be read: {error}") from error
    # Not inside the `try`: a missing or full device is no error of the checkpoint.
    return manifest, states if device == "cpu" else state_tree.move_to_device(states, device)


def _unpickle(
    path: Path, manifest: Manifest, file: str, data: memoryview[Any], pickles: Pickles, device: str
) -> list[Any]:
    from roost.package.checkpoints import pickled_values

    entry = manifest.files[file]
    pickled_values.require_accepted(path.name, str(entry["sha256"]), entry.get("signature"), pickles)
    try:
        return pickled_values.load(data, device=device)
    except CheckpointError as error:
        raise CheckpointError(f"{path.name}: {error.message}", fix=error.fix) from error


def copy(path: Path, to: Path, *, session: int) -> Manifest:
    """Copies a checkpoint into another ``Checkpoints`` under the same id, verifying every byte.

    Args:
        path: The checkpoint's folder, which is not changed.
        to: The folder ``Checkpoints`` that receives the copy.
        session: The session in the copy's manifest.

    Returns:
        The manifest of the copy.

    Raises:
        NotFound: The checkpoint does not exist.
        Damaged: A file is missing, or differs from what was written; or the checkpoint is being removed.
        CheckpointError: A newer roost has written it.
        OSError: It cannot be read or written; the partial copy is removed.
    """
    manifest = msgspec.structs.replace(read_manifest(path), session=session)
    with staged_folder(checkpoint_folder(to, manifest.id)) as staging:
        for name, entry in manifest.files.items():
            _checked_size(path, name, entry)
            found = durable.write_new(staging / name, _pieces(path / name))
            if found.sha256 != entry.get("sha256"):
                raise _digest_error(path, name)
        write_manifest(staging, manifest)
    return manifest


def _pieces(file: Path) -> Iterator[bytes]:
    with open(safe_read.open_fd(file), "rb", buffering=0) as opened:
        while piece := opened.read(_PIECE_BYTES):
            yield piece


def manifest_digest(path: Path) -> str:
    """Returns the SHA-256 of a checkpoint's manifest, which contains those of all its files.

    Raises:
        OSError: The manifest cannot be read.
    """
    return safe_read.sha256(path / "MANIFEST.json")


def set_aside(path: Path) -> Path:
    """Sets a damaged checkpoint aside: renames it to ``….corrupt``, so that it is not used again. Returns the
    new path."""
    renamed = path.with_name(path.name + ".corrupt")
    number = 2
    while renamed.exists():
        renamed = path.with_name(f"{path.name}.corrupt-{number}")
        number += 1
    durable.rename(path, renamed)
    return renamed
