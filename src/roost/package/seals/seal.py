"""A seal: a small file with the size and SHA-256 of other files, and of itself.

::

    {"format": 1,
     "session": 2,
     "files": {
      "records/2.jsonl": {"bytes": 4120, "sha256": "6f1d…"},
      "sessions/2.json": {"bytes": 911, "sha256": "b07a…"}},
     "sha256": "…"}                      of all that is above, as compact JSON

Written when nothing will change these files any more. A file that took too long to hash has its size only.
"""

# Standard library only

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roost.base import durable, safe_read
from roost.base.errors import RoostError

FORMAT = 1
_MAX_BYTES = 256 * 2**20
_PIECE_BYTES = 1 << 20
_MAX_SECONDS = 5.0
"""How long the hashing of all files may take. A session of more than some gigabytes of media would otherwise
keep its package locked; the remaining files are then sealed by their size."""


class SealedFile(NamedTuple):
    """A file as it was when it was sealed."""

    bytes: int
    sha256: str | None
    """None: only the size is known."""


class Seal(NamedTuple):
    """The content of a seal file."""

    session: int | None
    """The session at whose end it was written; None for the seal of a folder."""
    files: Mapping[str, SealedFile]
    """By path, relative to the package or folder."""


class BrokenSeal(RoostError):
    """A seal file is not as it was written."""


def write(
    path: Path,
    root: Path,
    names: Iterable[str],
    *,
    session: int | None = None,
    max_seconds: float | None = None,
) -> None:
    """Seals the files ``names`` of the folder ``root``, and writes the seal durably. A file that does not
    exist, or is no plain file, is left out. What is not hashed after ``max_seconds``, a few by default, is
    sealed by its size.

    Raises:
        OSError: A file cannot be read, or the seal cannot be written.
    """
    deadline = time.monotonic() + (_MAX_SECONDS if max_seconds is None else max_seconds)
    found = {name: _hash_file(root / name, deadline=deadline) for name in names}
    files = {name: one._asdict() for name, one in found.items() if one is not None}
    durable.write(path, encode({"format": FORMAT, "session": session, "files": files}))


def encode(body: Mapping[str, Any]) -> bytes:
    """Returns the text of a file with its own digest as the last key: the digest of the compact form, as
    white space may be of a later format."""
    import hashlib  # OpenSSL, 4 MB: not before the end of a session

    digest = hashlib.sha256(json.dumps(body, separators=(",", ":")).encode()).hexdigest()
    return json.dumps({**body, "sha256": digest}, indent=1).encode() + b"\n"


def _hash_file(path: Path, *, deadline: float) -> SealedFile | None:
    import hashlib

    try:
        fd = safe_read.open_fd(path, follow_link=False)
    except OSError:
        return None
    with open(fd, "rb", buffering=0) as file:
        digest, size = hashlib.sha256(), 0
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
            if time.monotonic() > deadline:
                return SealedFile(os.fstat(fd).st_size, None)
    return SealedFile(size, digest.hexdigest())


def read(path: Path) -> Seal:
    """Reads a seal.

    Raises:
        FileNotFoundError: There is none.
        BrokenSeal: It is not as it was written, or cannot be read.
    """
    body = read_body(path)
    try:
        files = {name: SealedFile(int(one["bytes"]), one["sha256"]) for name, one in body["files"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BrokenSeal(f"it cannot be read: {error}", where=path) from error
    return Seal(body.get("session"), files)


def read_body(path: Path) -> dict[str, Any]:
    """Reads a file that `encode` made, without its digest.

    Raises:
        FileNotFoundError: There is none.
        BrokenSeal: It is not as it was written, or cannot be read.
    """
    try:
        data = safe_read.read(path, max_bytes=_MAX_BYTES)
        body: dict[str, Any] = json.loads(data)
        digest = body.pop("sha256")
        is_whole = encode(body) == data  # each byte counts, white space too
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise BrokenSeal(f"it cannot be read: {error}", where=path) from error
    if not is_whole:
        raise BrokenSeal("its own digest is not the one that was written", where=path, received=digest)
    return body


def damage(path: Path, sealed: SealedFile) -> str | None:
    """Returns how a file differs from what was sealed; None if it does not."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError) as error:
        return f"cannot be read: {error}"
    if not stat.S_ISREG(status.st_mode):
        return "is not a plain file any more"
    if status.st_size != sealed.bytes:
        return f"has {status.st_size:,} bytes; {sealed.bytes:,} were written"
    if sealed.sha256 is None:
        return None
    try:
        found = _hash_file(path, deadline=float("inf"))
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if found is None:
        return "cannot be read"
    return None if found.sha256 == sealed.sha256 else "has other bytes than were written"
