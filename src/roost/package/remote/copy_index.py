"""The format of a remote copy: objects named by the SHA-256 of their bytes, and an index, written last.

::

    <url>/<package>/objects/<sha256>    a piece of a file, never changed
    <url>/<package>/index-<n>.json      every file with its pieces; the newest valid one counts, two are kept

A reader takes an index, and so never sees half of a copy; a cut upload costs the piece that was under way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from roost.base.errors import RoostError
from roost.package.checkpoints.checkpoint import Manifest

FORMAT = 1
OBJECTS = "objects"
_HEX = frozenset("0123456789abcdef")
_OBJECT_DIGITS, _RUN_DIGITS = 64, 32
MAX_OBJECT_BYTES = 256 * 2**20
"""More than any object has: whatever an index says, a reader fetches no more at once."""


class BrokenIndex(RoostError):
    """An index that cannot be used: its bytes are not those that were written, or a newer roost wrote it."""


class CopiedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a package, as the copy has it."""

    size: int
    sha256: str
    mode: int = 0o644
    mtime: float = 0.0
    """Seconds since 1970: seals and readers of media compare times."""
    piece_bytes: int
    """The size of every piece but the last."""
    pieces: list[str]
    """The SHA-256 of each piece, which is the name of its object."""

    def piece_sizes(self) -> Iterator[tuple[str, int]]:
        """Yields each piece with its size."""
        for number, name in enumerate(self.pieces):
            yield name, min(self.piece_bytes, self.size - number * self.piece_bytes)


class CopyOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Who wrote an index. ``time`` is by the clock of that machine."""

    host: str
    boot_id: str
    user: str
    session: int
    time: float


class CopyIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an index."""

    format: int = FORMAT
    number: int
    """One more than that of the index before."""
    run: str
    """Identifies the run: another package of the same name has another one (`run_id`)."""
    name: str
    """The name of the package."""
    kind: str
    owner: CopyOwner
    ended: bool
    """Whether no session of the package ran when it was copied."""
    taken: float
    """When the files were read, in seconds since 1970."""
    step: int | None
    """The step of the newest checkpoint of the copy: the run is durable up to it. The records up to that step
    are part of the copy. None without a checkpoint of roost."""
    files: dict[str, CopiedFile]
    links: dict[str, str] = {}
    folders: list[str] = []
    """The empty folders."""
    checkpoints: list[Manifest] = []
    """The manifests of the checkpoints, without their lists of files."""

    def objects(self) -> dict[str, int]:
        """Returns the names and sizes of all objects."""
        return {name: size for file in self.files.values() for name, size in file.piece_sizes()}

    @property
    def num_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size for file in self.files.values())


def run_id(request: bytes) -> str:
    """Returns the identity of a run, from the bytes of its request.json, which never change."""
    return hashlib.sha256(request).hexdigest()[:32]


def index_name(number: int) -> str:
    """Returns the name of an index."""
    return f"index-{number}.json"


def index_number(name: str) -> int | None:
    """Returns the number of an index by its name; None for another file."""
    digits = name.removeprefix("index-").removesuffix(".json")
    return (
        int(digits) if digits.isdecimal() and len(digits) < 19 and index_name(int(digits)) == name else None
    )


def is_object_name(name: str) -> bool:
    """Whether a name is that of an object."""
    return len(name) == _OBJECT_DIGITS and _HEX.issuperset(name)


def encode(index: CopyIndex) -> bytes:
    """Returns the bytes of an index, which end with a digest of the rest."""
    body = msgspec.json.encode(index)
    digest = hashlib.sha256(body).hexdigest()
    return body + b"\n" + digest.encode() + b"\n"


def decode(data: bytes) -> CopyIndex:
    """Reads an index.

    Raises:
        BrokenIndex: It is torn, damaged, or of a newer format, or names files that no package has.
    """
    body, _, rest = data.partition(b"\n")
    if rest != hashlib.sha256(body).hexdigest().encode() + b"\n":
        raise BrokenIndex("it is torn or damaged: its digest is not the one that was written")
    try:
        format = msgspec.json.decode(body, type=dict[str, Any]).get("format")
        if format != FORMAT:
            fix = f"update roost: this version reads format {FORMAT}"
            raise BrokenIndex(f"it has format {format}", fix=fix)
        index = msgspec.json.decode(body, type=CopyIndex)
    except (ValueError, RecursionError, AttributeError) as error:
        raise BrokenIndex(f"it has invalid content: {error}") from error
    _require_safe(index)
    return index


def _require_safe(index: CopyIndex) -> None:
    """Refuses an index by which a reader would write outside of the package: any program may have made it."""
    if len(index.run) != _RUN_DIGITS or not _HEX.issuperset(index.run):  # a part of a folder's name
        raise BrokenIndex("it does not say of which run it is")
    for name in (*index.files, *index.links, *index.folders):
        parts = name.split("/")
        if "\0" in name or any(part in ("", ".", "..") for part in parts):
            raise BrokenIndex(f"it names {name!r}, which cannot be a file of a package")
        if any("/".join(parts[:count]) in index.links for count in range(1, len(parts))):
            raise BrokenIndex(f"it names {name!r}, which is behind a link")
        if any("/".join(parts[:count]) in index.files for count in range(1, len(parts))):
            raise BrokenIndex(f"it names {name!r}, which is inside a file")
    for name, target in index.links.items():
        if not target or "\0" in target or name in index.folders:
            raise BrokenIndex(f"its link {name!r} cannot be made")
    for name, file in index.files.items():
        count = -(-file.size // file.piece_bytes) if file.piece_bytes > 0 and file.size >= 0 else -1
        if count != len(file.pieces) or file.piece_bytes > MAX_OBJECT_BYTES:
            raise BrokenIndex(f"the pieces of {name!r} do not make up its size")
        if not all(map(is_object_name, file.pieces)):
            raise BrokenIndex(f"a piece of {name!r} has no name of an object")
        if name in index.links or name in index.folders:
            raise BrokenIndex(f"it names {name!r} twice")
