"""The operation ``pull``: lists the remote copies in a store, or restores one as a package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roost.base.errors import NotFound, RoostError
from roost.operations import work_progress
from roost.operations.remote_copies.typed_url import typed_url
from roost.package.remote import ownership, restore
from roost.package.remote.copy_index import CopyIndex
from roost.package.remote.remote_copy import RemoteCopy, copies_below, open_store
from roost.package.remote.restore import Restored, RestoreProgress

_MB = 10**6


@dataclass(frozen=True)
class ListedCopy:
    """A remote copy in a store."""

    name: str
    url: str
    copied: CopyIndex | None
    """Its newest index; None: it cannot be read."""
    error: str | None = None


@dataclass(frozen=True)
class Pulled:
    """The result of `pull`: the restored package, or the copies that are there."""

    restored: Restored | None
    copies: list[ListedCopy]
    notes: list[str]


def pull(url: str, into: Path) -> Pulled:
    """Restores the package of a remote copy; if the URL is a folder of copies, lists them.

    Args:
        url: The copy, or the folder.
        into: The save root of the restored package.

    Raises:
        NotFound: There is nothing, or the library of the store is missing.
        BrokenIndex: The copy is damaged.
        StoreError: The store failed; the next call continues.
        Refused: A package of the name exists and differs.
    """
    place = typed_url(url)
    copy = RemoteCopy(open_store(place))
    if not copy.index_numbers():
        found = [ListedCopy(name, place.joined(name).text, *_read(one)) for name, one in copies_below(place)]
        if not found:
            raise NotFound(
                "there is no remote copy of a package here",
                where=place.text,
                fix="check the URL; `roost push PACKAGE URL` makes one",
            )
        return Pulled(None, found, [])

    def note(progress: RestoreProgress) -> None:
        done, total = (round(number / _MB) for number in progress)
        work_progress.report("restoring, MB", done, total)

    restored = restore.restore(copy, into, note=note)
    notes = []
    try:
        ownership.require_not_owned(restored.index, url=place.text)
    except ownership.OwnedElsewhere as error:
        notes.append(f"{error.message}: two machines must not continue one run")
    return Pulled(restored, [], notes)


def _read(found: CopyIndex | RoostError) -> tuple[CopyIndex | None, str | None]:
    return (found, None) if isinstance(found, CopyIndex) else (None, found.message)
