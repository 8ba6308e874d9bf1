"""The file ``remote.json`` of a package: how far its remote copy is. The process that uploads writes it; it
is not part of the copy."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from roost.base import durable, safe_read
from roost.base.text.byte_sizes import format_bytes
from roost.base.text.timestamps import format_time
from roost.package import labels

NAME = "remote.json"
FORMAT = 1
UploadState = Literal["uploading", "idle", "failing", "refused", "ended"]


class RemoteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a remote copy is, as of ``time``."""

    format: int = FORMAT
    url: str
    """The store, without the name of the package."""
    name: str = ""
    """The name of the package when this was written; versions before that of this field wrote none."""
    store_id: str | None = None
    """The id of the folder that is the store (`RemoteCopy.require_store`)."""
    state: UploadState
    """uploading; idle: all is uploaded until the next look; failing: tried again later; refused: not tried
    again; ended: by the end of the session."""
    time: float
    """When this was written, in seconds since 1970."""
    pid: int | None = None
    start_ticks: int | None = None
    boot_id: str = ""
    step: int | None = None
    """The run is durable up to this step; None: no checkpoint is in the copy."""
    taken: float | None = None
    """When the files were read that the copy has; None: there is no copy yet."""
    is_proven: bool = True
    """False if the store is a mounted drive, which uploads later and without a word."""
    checkpoints: list[int] = []
    """The ids of the checkpoints in the copy."""
    pending_bytes: int = 0
    """What the present upload has still to send."""
    mb_per_second: float | None = None
    """Of the last upload of more than a few bytes, with its verification."""
    error: str | None = None
    """Why the copy does not get further."""
    error_since: float | None = None


def read(package: Path) -> RemoteStatus | None:
    """Returns the status of a package's remote copy; None if there is none, or it cannot be read. A package
    that was renamed, or copied under another name, has no copy under its new name yet."""
    try:
        found = msgspec.json.decode(bytes(safe_read.read(package / NAME)), type=RemoteStatus)
    except (OSError, ValueError):
        return None
    if found.name in ("", package.resolve().name):
        return found
    return RemoteStatus(url=found.url, state="ended", time=found.time)


def write(package: Path, status: RemoteStatus) -> None:
    """Replaces the status.

    Raises:
        OSError: It cannot be written.
    """
    named = msgspec.structs.replace(status, name=package.resolve().name)
    durable.write_unsynced(package / NAME, msgspec.json.format(msgspec.json.encode(named), indent=1))
    labels.renew_stamp(package / "sessions")  # lists of packages read the status again


def describe(status: RemoteStatus) -> str:
    """Returns one line: ``durable up to step 400``, ``NOT durable since step 400: …``."""
    if status.taken is None:
        far = "not durable at all"
    else:
        point = f"step {status.step}" if status.step is not None else format_time(status.taken)
        far = f"durable up to {point}" if status.is_proven else f"copied up to {point}, not proven durable"
        if status.error is not None:
            far = f"NOT durable since {point}"
    if status.error is not None:
        return f"{far}: {status.error}"
    return far + (f", {format_bytes(status.pending_bytes)} to go" if status.pending_bytes else "")
