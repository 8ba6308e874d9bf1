"""The operation ``push``: uploads a package to its remote copy now, whether or not its run has ended."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from roost.base import safe_read
from roost.base.errors import ConfigError, Refused, UsageError
from roost.config.sections.remote import RemoteSettings
from roost.config.values.store_url import StoreUrl, parse_url
from roost.operations import work_progress
from roost.operations.remote_copies.typed_url import typed_url
from roost.operations.resolve import find_package
from roost.package import sessions
from roost.package.package import PackageFolder
from roost.package.remote import ownership, remote_status
from roost.package.remote.remote_copy import RemoteCopy
from roost.package.remote.remote_status import RemoteStatus
from roost.package.remote.upload import (
    CopyCheck,
    CopyTaken,
    Uploader,
    UploadOptions,
    UploadProgress,
    UploadResult,
)

_MB = 10**6
_STEAL_TRIES = 5
"""The owner may write once more while its copy is being taken: it stops at its next upload after that."""


@dataclass(frozen=True)
class Pushed:
    """A remote copy that is up to date."""

    path: Path
    """The package."""
    url: str
    """The copy."""
    upload: UploadResult
    status: RemoteStatus
    check: CopyCheck | None = None
    """What was found before the upload; None: nothing was read."""


def push(word: str | Path, url: str | None = None, *, steal: bool = False, verify: bool = False) -> Pushed:
    """Uploads a package.

    Args:
        word: The package.
        url: The store; None: that of its setting ``remote``, or of the last upload.
        steal: Whether to take the copy from another machine, or from sessions that this package lacks.
        verify: Whether to read all that is in the copy first. What is bad is put again.

    Raises:
        NotFound: There is no such package, or the library of the store is missing.
        UsageError: No store is known.
        Refused: The copy is of another run, belongs to another machine, or is being uploaded.
        StoreError: The store failed; the next call continues.
    """
    package = PackageFolder.open(find_package(word))
    settings = _settings(package)
    place = typed_url(url) if url is not None else _known_url(package, settings)
    name = package.path.name
    copy = RemoteCopy.at(place, name)

    def note(what: str, progress: UploadProgress) -> None:
        done, total = (round(number / _MB) for number in progress)
        work_progress.report(f"{what} {name}, MB", done, total)

    with _locked(package.path):
        before = remote_status.read(package.path)
        store_id = before.store_id if before is not None and before.url == place.text else None
        is_live = safe_read.is_locked(package.path / sessions.LOCK_NAME) is True
        for tries_left in reversed(range(_STEAL_TRIES if steal else 1)):
            uploader = Uploader(package, copy, _options(settings), store_id=store_id, steal=steal)
            check = uploader.check(note=partial(note, "verifying")) if verify else None
            try:
                result = uploader.upload(is_live=is_live, note=partial(note, "uploading"))
                break
            except CopyTaken as error:
                if not steal:
                    raise
                if not tries_left:
                    raise Refused(
                        f"its owner wrote to the remote copy during each of {_STEAL_TRIES} tries to take it",
                        where=copy.store.url.text,
                        fix="end the session there, then try again",
                    ) from error
        status = _status(place, result)
        with contextlib.suppress(OSError):  # a package that only may be read
            remote_status.write(package.path, status)
    return Pushed(package.path, copy.store.url.text, result, status, check)


def _settings(package: PackageFolder) -> dict[str, Any]:
    """Returns the newest section ``remote`` of a package; empty without one."""
    requests = [one.request.remote for one in package.sessions()]
    return next((one for one in reversed(requests) if isinstance(one, dict)), {})


def _known_url(package: PackageFolder, settings: dict[str, Any]) -> StoreUrl:
    status = remote_status.read(package.path)
    found = settings.get("url") or (status.url if status is not None else None)
    if found is None:
        raise UsageError(
            "the package has no remote copy yet",
            where=package.path,
            fix="name a store: `roost push PACKAGE s3://bucket/runs`, or a folder",
        )
    return parse_url(str(found))


def _options(settings: dict[str, Any]) -> UploadOptions:
    try:
        known = msgspec.convert({"url": "", **settings}, RemoteSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the last session's section remote cannot be read: {error}") from error
    return UploadOptions.from_settings(known)


def _status(url: StoreUrl, result: UploadResult) -> RemoteStatus:
    return RemoteStatus(
        url=url.text,
        store_id=result.store_id,
        state="ended",
        time=time.time(),
        step=result.index.step,
        taken=result.index.taken,
        is_proven=result.is_proven,
        checkpoints=[one.id for one in result.index.checkpoints],
    )


@contextlib.contextmanager
def _locked(package: Path) -> Iterator[None]:
    fd = ownership.lock_uploads(package)
    if fd is None:
        status = remote_status.read(package)
        raise Refused(
            "another process uploads this package",
            where=package,
            fix=f"wait for it ({remote_status.describe(status)})" if status is not None else "wait for it",
        )
    try:
        yield
    finally:
        os.close(fd)
