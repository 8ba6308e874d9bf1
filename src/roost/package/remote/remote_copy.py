"""The remote copy of one package: its indexes and objects in a store."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from roost.base.errors import NotFound, Refused
from roost.config.values.store_url import LIBRARIES, StoreUrl
from roost.package.remote import copy_index
from roost.package.remote.copy_index import OBJECTS, BrokenIndex, CopyIndex
from roost.package.remote.folder_store import FolderStore
from roost.package.remote.store import ObjectDamaged, ObjectMissing, Store, StoreError, missing_library

_KEPT_INDEXES = 2
_INDEX_FIX = (
    "delete this index in the store; `roost push` of the package, where it still is, writes the copy again"
)


def require_library(url: StoreUrl) -> None:
    """Makes sure that the libraries of a store are installed, without importing them.

    Raises:
        NotFound: One is missing; the message names the extra.
    """
    if url.scheme not in LIBRARIES:
        return
    library = LIBRARIES[url.scheme]
    for module in ("fsspec", library.module):
        if find_spec(module) is None:
            raise missing_library(url.scheme, module, library.extra)


def open_store(url: StoreUrl) -> Store:
    """Opens a store, without asking it anything yet where that is possible.

    Raises:
        NotFound: The library of the scheme is not installed; the message names the extra.
        StoreError: The store cannot be opened.
    """
    if url.scheme == "file":
        return FolderStore(url)
    if LIBRARIES[url.scheme].module == "paramiko":
        from roost.package.remote.sftp_store import SftpStore

        return SftpStore(url)
    from roost.package.remote.fsspec_store import FsspecStore  # fsspec is an extra

    return FsspecStore(url)


class RemoteCopy:
    """The remote copy at ``<url>/<name>``, which need not exist yet.

    Args:
        store: The store of this copy alone: its URL ends with the name of the package.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    def at(cls, url: StoreUrl, name: str) -> RemoteCopy:
        """Returns the copy of the package ``name`` below ``url``. Raises NotFound, StoreError."""
        return cls(open_store(url.joined(name)))

    def require_store(self, known: str | None, *, has_copy: bool) -> str | None:
        """Makes sure that the store is the one in which the copy was before, as `FolderStore.require_marker`.
        Returns its id; None for a store that cannot be taken for another one. Raises StoreError."""
        if isinstance(self.store, FolderStore):
            return self.store.require_marker(known, has_copy=has_copy)
        return None

    def require_outside(self, package: Path) -> None:
        """Makes sure that the copy of a package is not in the package itself, with which it would be lost:
        where copies and packages have one folder, the copy has the package's own path. Raises Refused."""
        if not isinstance(self.store, FolderStore):
            return
        place = Path(self.store.url.rest)
        if place.resolve().is_relative_to(package.resolve()):
            raise Refused(
                "the remote copy would be inside the package itself",
                where=place,
                fix="use another folder; the copy of a package is at URL/NAME",
            )

    def index_numbers(self) -> list[int]:
        """Returns the numbers of the indexes, valid or not, the newest first. Raises StoreError."""
        found = map(copy_index.index_number, self.store.sizes(""))
        return sorted((number for number in found if number is not None), reverse=True)

    def newest_index(self) -> CopyIndex | None:
        """Returns the newest valid index; None if there is no copy yet.

        Raises:
            StoreError: The store does not answer.
            BrokenIndex: There are indexes, and none is valid.
        """
        indexes = self.kept_indexes()
        return indexes[0] if indexes else None

    def kept_indexes(self) -> list[CopyIndex]:
        """Returns the valid indexes, the newest first. Errors as `newest_index`."""
        found: list[CopyIndex] = []
        broken: BrokenIndex | None = None
        for number in self.index_numbers():
            try:
                found.append(self.read_index(number))
            except ObjectMissing:  # its writer has deleted it meanwhile, after it wrote a newer one
                continue
            except BrokenIndex as error:
                broken = broken or BrokenIndex(
                    f"{copy_index.index_name(number)}: {error.message}",
                    where=self.store.url.text,
                    fix=error.fix or _INDEX_FIX,
                )
        if broken is not None and not found:
            raise broken
        return found

    def read_index(self, number: int) -> CopyIndex:
        """Returns the index of a number. Raises ObjectMissing, StoreError, BrokenIndex."""
        index = copy_index.decode(self.store.get(copy_index.index_name(number)))
        # Else an old index in the place of the newest would bring back an old state.
        if index.number != number:
            raise BrokenIndex(f"it is the index {index.number}, under another name")
        return index

    def require_index(self) -> CopyIndex:
        """As `newest_index`. Raises NotFound if there is no copy."""
        if (index := self.newest_index()) is None:
            raise NotFound(
                "there is no remote copy of a package",
                where=self.store.url.text,
                fix="see what is there: `roost pull URL` with the URL of the folder above lists the copies",
            )
        return index

    def put_index(self, index: CopyIndex) -> None:
        """Writes an index and reads it again; then removes older ones, but for the one before.

        Raises:
            StoreError: It could not be written, or has other bytes.
            BrokenIndex: Its number is too large.
        """
        name, data = copy_index.index_name(index.number), copy_index.encode(index)
        if copy_index.index_number(name) is None:  # no reader would find it
            newest = copy_index.index_name(index.number - 1)
            raise BrokenIndex(
                f"{newest} has the largest number that there is",
                where=self.store.url.text,
                fix=f"delete {newest} in the store: no upload has written it",
            )
        self.store.put(name, data)
        if self.store.get(name) != data:
            raise StoreError(f"{self.store.url.text} returned other bytes of {name} than were written")
        for number in self.index_numbers():
            if number <= index.number - _KEPT_INDEXES:
                self.store.delete(copy_index.index_name(number))

    def objects(self) -> dict[str, int]:
        """Returns the objects that the store lists, with their sizes. Raises StoreError."""
        if isinstance(self.store, FolderStore):
            self.store.sweep(OBJECTS)
        # What has no name of an object is not of roost, and so is never deleted.
        return {
            name: size for name, size in self.store.sizes(OBJECTS).items() if copy_index.is_object_name(name)
        }

    def put_object(self, name: str, data: bytes | memoryview) -> None:
        """Writes an object. Raises StoreError."""
        self.store.put(f"{OBJECTS}/{name}", data)

    def get_object(self, name: str, size: int) -> bytes:
        """Returns an object, whose bytes are verified.

        Raises:
            ObjectMissing: There is none.
            ObjectDamaged: The bytes are wrong.
            StoreError: The store does not answer.
        """
        try:
            data = self.store.get(f"{OBJECTS}/{name}")
        except ObjectMissing as error:
            raise ObjectMissing(error.message, fix=_object_fix(name)) from error
        if len(data) != size:
            raise ObjectDamaged(
                f"{self.store.url.text}: the object {name[:12]}… has {len(data)} bytes instead of {size}",
                fix=_object_fix(name),
            )
        if hashlib.sha256(data).hexdigest() != name:
            raise ObjectDamaged(
                f"{self.store.url.text}: the object {name[:12]}… has other bytes than were written",
                fix=_object_fix(name),
            )
        return data

    def delete_objects(self, names: list[str], *, check: Callable[[], None] = lambda: None) -> None:
        """Deletes objects. Raises StoreError."""
        for name in names:
            check()
            with contextlib.suppress(ObjectMissing):
                self.store.delete(f"{OBJECTS}/{name}")


def _object_fix(name: str) -> str:
    return (
        f"`roost push PACKAGE --verify`, where the package still is, puts {OBJECTS}/{name} of the store again"
    )


def copies_below(url: StoreUrl) -> list[tuple[str, CopyIndex | StoreError | BrokenIndex]]:
    """Returns the remote copies directly below a URL by name, each with its newest index, or why it has none.

    Raises:
        NotFound, StoreError: The store cannot be opened or listed.
    """
    found: list[tuple[str, CopyIndex | StoreError | BrokenIndex]] = []
    for name in open_store(url).folders():
        try:
            index = RemoteCopy.at(url, name).newest_index()
        except (StoreError, BrokenIndex) as error:
            found.append((name, error))
            continue
        if index is not None:
            found.append((name, index))
    return found
