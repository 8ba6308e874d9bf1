"""One checkpoint: a folder of state files with a manifest of their digests, committed by one rename.

torch.load and safetensors load flipped bits in silence; here a checkpoint is read only after every byte
of it, the manifest's own included, was compared with what was written.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from roost.base import durable, safe_read
from roost.base.errors import CheckpointError, Damaged, NotFound
from roost.base.system import cpu_cores

FORMAT = 1
PREFIX = "state_"
_PIECE_BYTES = 1 << 22
_LARGE_BYTES = 1 << 24
_FOLDER = re.compile(re.escape(PREFIX) + r"(\d+)\.ckpt")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What MANIFEST.json says of a checkpoint. ``id`` counts saves; ``parent`` is the id it goes on from."""

    format: int = FORMAT
    id: int
    step: int
    epoch: int
    batch: int
    parent: int | None = None
    line: list[tuple[int, int]] = []
    """The ids that lead here, as ranges, this one included; parents may be gone from the disk."""
    session: int = 0
    reason: str = "scheduled"
    """start, scheduled, best, held, requested, signal or final."""
    held: bool = False
    scheduled: int | None = None
    """Which scheduled save this was, from 0; None for the others. The slow track counts these."""
    metrics: dict[str, float] = {}
    """What was measured at this very step."""
    nonfinite: dict[str, str] = {}
    """In the file only: the metrics that are no number there, because JSON has neither NaN nor infinity."""
    ranks: int = 1
    time: float = 0.0
    inexact: list[str] = []
    files: dict[str, dict[str, Any]] = {}

    @property
    def size_bytes(self) -> int:
        """Of all files of its ranks and parts, without the manifest."""
        return sum(int(entry.get("bytes", 0)) for entry in self.files.values())


def checkpoint_folder(folder: Path, id: int) -> Path:
    """Where checkpoint ``id`` stands, or would stand, below a ``Checkpoints`` folder."""
    return folder / f"{PREFIX}{id}.ckpt"


def checkpoint_id(path: Path) -> int:
    """The id of the checkpoint that stands, or would stand, at ``path``."""
    return int(path.name.removeprefix(PREFIX).removesuffix(".ckpt"))


def ids(folder: Path) -> list[int]:
    """The ids of the committed checkpoints, ascending; whether they are good is not looked at."""
    return sorted(int(match[1]) for path in folder.iterdir() if (match := _FOLDER.fullmatch(path.name)))


def set_aside_names(folder: Path) -> list[str]:
    """The names of the damaged ones that were set aside."""
    return sorted(
        path.name for path in folder.iterdir() if _FOLDER.match(path.name) and ".corrupt" in path.name
    )


def next_id(folder: Path) -> int:
    """One above every id that was ever used here, those set aside included."""
    used = [int(match[1]) for path in folder.iterdir() if (match := _FOLDER.match(path.name))]
    return max(used, default=-1) + 1


def lineage_after(parent: Manifest | None, id: int) -> list[tuple[int, int]]:
    """The line of a checkpoint ``id`` that goes on from ``parent``."""
    if parent is None:
        return [(id, id)]
    *older, (first, last) = parent.line
    return [*older, (first, id)] if id == last + 1 else [*older, (first, last), (id, id)]


def _encode(info: Manifest) -> bytes:
    nonfinite = {name: repr(value) for name, value in info.metrics.items() if not math.isfinite(value)}
    finite = {name: value for name, value in info.metrics.items() if name not in nonfinite}
    return _sealed(msgspec.to_builtins(msgspec.structs.replace(info, metrics=finite, nonfinite=nonfinite)))


def _sealed(body: dict[str, Any]) -> bytes:
    """The JSON of ``body`` with the sha256 of its compact form as the last key."""
    digest = hashlib.sha256(msgspec.json.encode(body)).hexdigest()
    return msgspec.json.format(msgspec.json.encode({**body, "sha256": digest}), indent=2) + b"\n"


def _decode(data: bytes) -> Manifest:
    """The manifest of these bytes. Every format is sealed alike, so that an older roost can tell a newer
    checkpoint from a damaged one."""
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
        raise CheckpointError(f"it has format {format}", fix=f"update roost: this one reads format {FORMAT}")
    try:
        info = msgspec.convert(body, type=Manifest)
        metrics = {**info.metrics, **{name: float(text) for name, text in info.nonfinite.items()}}
    except ValueError as error:
        raise CheckpointError(f"its MANIFEST.json does not mean anything: {error}") from error
    return msgspec.structs.replace(info, metrics=metrics, nonfinite={})


def write(folder: Path, trees: Mapping[str, Any], info: Manifest) -> Manifest:
    """Writes one checkpoint durably; when this returns it stands, when it raises nothing has changed.

    Args:
        folder: The package's ``Checkpoints``.
        trees: A state (see `roost.base.state_tree`) per name; each becomes ``<name>.json`` and, with tensors,
            ``<name>.safetensors``.
        info: All but ``files``, which is filled in.

    Raises:
        OSError: No space, an I/O error, …; the half-written folder is removed.
        CheckpointError: A state holds something that cannot be saved.
    """
    from roost.package.checkpoints import (
        part_files,  # NumPy, 0.1 s: whoever only looks at manifests goes without
    )

    with staged_folder(checkpoint_folder(folder, info.id)) as staging:
        info = msgspec.structs.replace(info, files=part_files.write(staging, part_files.pack(trees)))
        write_manifest(staging, info)
    return info


def write_manifest(staging: Path, info: Manifest) -> None:
    """Writes the manifest, the last file of a checkpoint."""
    durable.write_new(staging / "MANIFEST.json", [_encode(info)])


@contextmanager
def staged_folder(final: Path) -> Iterator[Path]:
    """A folder that takes a checkpoint's files; afterwards it is ``final``, or after an error gone."""
    staging = durable.make_staging_folder(final)
    try:
        yield staging
        durable.commit_folder(staging, final)
    except BaseException:
        if staging.exists():
            durable.discard(staging)
        raise


def read_manifest(path: Path) -> Manifest:
    """A checkpoint's manifest alone.

    Raises:
        NotFound: There is no such checkpoint.
        Damaged: The manifest is missing or not as it was written.
        CheckpointError: It was written by a newer roost.
        OSError: It could not be read, which says nothing against it.
    """
    if not path.exists():
        raise NotFound("there is no such checkpoint", received=str(path))
    try:
        _plain_file_size(path, "MANIFEST.json", at_most=safe_read.MAX_SMALL_FILE_BYTES)
        return _decode(bytes(safe_read.read(path / "MANIFEST.json")))
    except CheckpointError as error:
        raise type(error)(f"{path.name}: {error.message}", fix=error.fix) from error


def _plain_file_size(path: Path, name: str, *, at_most: float = math.inf) -> int:
    """The size of a plain file of a checkpoint. Whatever else the system says (no right to read, no
    descriptor left, an I/O error, a server that is away) is raised as it is: it is no damage."""
    try:
        found = (path / name).stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Damaged(f"its {name} cannot be read: it is missing") from error
    if not stat.S_ISREG(found.st_mode) or found.st_size > at_most:
        raise Damaged(f"its {name} cannot be read: it is no plain file of a sane size")
    return found.st_size


def read_manifests(folder: Path) -> list[Manifest]:
    """The manifests of all checkpoints that have a readable one, by ascending id."""
    found = []
    for id in ids(folder):
        try:
            found.append(read_manifest(checkpoint_folder(folder, id)))
        except (CheckpointError, NotFound, FileNotFoundError):
            continue  # damaged, or removed meanwhile by the run itself: `verify` says so, readers go on
    return found


def _checked_size(path: Path, name: str, entry: Mapping[str, Any]) -> int:
    if Path(name).name != name or "\0" in name:
        raise CheckpointError(f"{path.name}: its MANIFEST.json names {name!r}, which is no file of it")
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
    """The bytes of a file, compared with its digest; None unless they are to stay in memory."""
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
    """Compares every byte with its digest, loads nothing.

    Raises:
        NotFound: There is no such checkpoint.
        Damaged: Something is missing or not as it was written.
        CheckpointError: It was written by a newer roost.
        OSError: It could not be read, which says nothing against it.
    """
    info = read_manifest(path)
    for name, entry in info.files.items():
        _checked_bytes(path, name, entry)
    return info


def part_names(info: Manifest) -> list[str]:
    """The names of the states that a checkpoint holds."""
    return [name.removesuffix(".json") for name in info.files if name.endswith(".json")]


def _tensor_files(info: Manifest, part: str) -> list[str]:
    """Those with the tensors of a part: that of the whole ones, then that of each rank's shards."""
    found = [f"{part}.safetensors", *(f"{part}.shard-{rank}.safetensors" for rank in range(info.ranks))]
    return [name for name in found if name in info.files]


def tensor_digest(info: Manifest, part: str) -> tuple[str | None, int]:
    """Of the tensors of a part: what tells them from others, and their bytes. None and 0: it has none."""
    entries = [info.files[name] for name in _tensor_files(info, part)]
    size = sum(int(entry.get("bytes", 0)) for entry in entries)
    digests = [str(entry.get("sha256", "")) for entry in entries]
    if len(digests) > 1:
        return hashlib.sha256("".join(digests).encode()).hexdigest(), size
    return (digests[0] if digests else None), size


def _read_files(
    path: Path, info: Manifest, wanted: Sequence[str], others: Iterable[str]
) -> dict[str, memoryview[Any]]:
    """The bytes of the files ``wanted``; those and ``others`` are compared with their digests, of large ones
    on all cores, as that takes longer than the reading."""

    def check(name: str) -> memoryview[Any] | None:
        return _checked_bytes(path, name, info.files[name], is_kept=name in wanted)

    names = [*wanted, *others]
    if len(names) < 2 or info.size_bytes < _LARGE_BYTES:
        found = [check(name) for name in names]
    else:
        from concurrent.futures import ThreadPoolExecutor  # 5 ms, which a list of packages needs not pay

        with ThreadPoolExecutor(min(len(names), cpu_cores.usable_cores())) as pool:
            found = list(pool.map(check, names))
    return {name: data for name, data in zip(names, found, strict=True) if data is not None}


def read(
    path: Path,
    *,
    only: Iterable[str] | None = None,
    to: Literal["torch", "numpy"] = "torch",
    device: str = "cpu",
    is_whole: bool = False,
) -> tuple[Manifest, dict[str, Any]]:
    """The manifest and the states by name, each byte compared with its digest first. Large tensors of a file
    share one piece of memory, which lives as long as one of them: clone what you keep without the others.

    Args:
        path: The checkpoint's folder.
        only: Names of the states to read; all when None.
        is_whole: Whether the bytes of the others are compared, too, and names that it does not hold are
            passed over.
        to: What tensors become; with "numpy" torch is not needed.
        device: Where torch's tensors go.

    Raises:
        NotFound: There is no such checkpoint.
        Damaged: Something is missing or not as it was written.
        CheckpointError: It is as it was written, and this roost or this torch cannot read it.
        OSError: It could not be read, which says nothing against it.
        RuntimeError: The device is full, or there is none.
    """
    from roost.base import safetensors_format, state_tree

    info = read_manifest(path)
    names = part_names(info)
    asked = names if only is None else [name for name in only if name in names or not is_whole]
    if missing := [name for name in asked if name not in names]:
        raise CheckpointError(f"{path.name} holds no {missing[0]!r}; it holds {', '.join(names)}")
    files = {name: [f"{name}.json", *_tensor_files(info, name)] for name in asked}
    wanted = [file for found in files.values() for file in found]
    contents = _read_files(path, info, wanted, info.files.keys() - wanted if is_whole else ())
    states = {}
    for name, [skeleton, *others] in files.items():
        text, stored = contents.pop(skeleton), [contents.pop(file) for file in others]
        try:
            leaves = safetensors_format.JoinedLeaves([safetensors_format.parse(data) for data in stored])
            states[name] = state_tree.unpack(json.loads(bytes(text)), leaves, to=to, may_view=True)
        # Its digest is right, so these bytes were written: by a newer roost, or by nothing of ours.
        except (CheckpointError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{path.name}: {name} cannot be read: {error}") from error
    # Outside: a device that is full or not there says nothing against the checkpoint.
    return info, states if device == "cpu" else state_tree.move_to_device(states, device)


def copy(path: Path, to: Path, *, session: int) -> Manifest:
    """Copies a checkpoint into another ``Checkpoints``, under its id; every byte is compared on the way.

    Args:
        path: The checkpoint's folder; nothing of it changes.
        to: The folder that takes it.
        session: The one that the copy counts as saved by.

    Returns:
        The manifest of the copy.

    Raises:
        NotFound: There is no such checkpoint.
        Damaged: Something is missing or not as it was written; or it is being removed just now.
        CheckpointError: It was written by a newer roost.
        OSError: It cannot be read or written; the half-written copy is removed.
    """
    info = msgspec.structs.replace(read_manifest(path), session=session)
    with staged_folder(checkpoint_folder(to, info.id)) as staging:
        for name, entry in info.files.items():
            _checked_size(path, name, entry)
            found = durable.write_new(staging / name, _pieces(path / name))
            if found.sha256 != entry.get("sha256"):
                raise _digest_error(path, name)
        write_manifest(staging, info)
    return info


def _pieces(file: Path) -> Iterator[bytes]:
    with open(safe_read.open_fd(file), "rb", buffering=0) as opened:
        while piece := opened.read(_PIECE_BYTES):
            yield piece


def manifest_digest(path: Path) -> str:
    """The sha256 of a checkpoint's manifest, which names those of all its files.

    Raises:
        OSError: It cannot be read.
    """
    return safe_read.sha256(path / "MANIFEST.json")


def set_aside(path: Path) -> Path:
    """Renames a damaged checkpoint to ``….corrupt`` so that nobody chooses it again; gives the new path."""
    aside = path.with_name(path.name + ".corrupt")
    number = 2
    while aside.exists():
        aside = path.with_name(f"{path.name}.corrupt-{number}")
        number += 1
    durable.rename(path, aside)
    return aside
