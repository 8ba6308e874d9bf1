"""Downloads a file once, from the first mirror that gives the right bytes."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from roost.base import durable
from roost.base.errors import RoostError
from roost.project.transfer_progress import TransferProgress

_PIECE_BYTES = 1 << 16
_SCHEMES = ("http", "https", "file")


def download(
    urls: str | Sequence[str],
    target: Path | str,
    *,
    sha256: str,
    timeout_seconds: float = 20.0,
    advice: str = "",
) -> Path:
    """Ensures that ``target`` is the file with this checksum, and returns its path.

    An existing file with the right checksum is not downloaded again. One with another checksum is renamed
    once the download has succeeded, never deleted. ``target`` appears only complete, verified and durable,
    whichever process is killed; of several processes that call this at once, one downloads.

    Args:
        urls: One or several mirrors, in the order they are tried; http, https or file.
        target: The path of the file. Its folder is created.
        sha256: The checksum, 64 hexadecimal digits.
        timeout_seconds: A mirror that sends nothing, or under 1 kB/s, for so long is given up; so is one
            whose answer has not begun after three times as long.
        advice: The fix shown when no mirror works; by default to check the network or to put the file there.

    Raises:
        RoostError: No mirror works, with the cause of each; a URL or the checksum is invalid; or ``target``
            is a folder.
        OSError: The disk is full, or the folder is not writable.
    """
    target, sources = Path(target).absolute(), [urls] if isinstance(urls, str) else list(urls)
    sha256 = sha256.lower()
    _check(sources, target, sha256)
    if _sha256(target) == sha256:
        return target
    durable.make_folders(target.parent)
    with _exclusive(target):
        _clear(target)
        there = _sha256(target)  # again: the process that held the lock may have downloaded it
        if there != sha256:
            aside = target.with_name(f"{target.name}.{there[:12]}") if there else None
            if aside:
                _print(f"{target.name} has another checksum: it is fetched anew, and kept as {aside.name}")
            fetched = _from_mirrors(sources, target, sha256, timeout_seconds, advice)
            if aside:
                durable.rename(target, aside)
            durable.rename(fetched, target)
    return target


def _check(urls: Sequence[str], target: Path, sha256: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        fix = "give the 64 hexadecimal digits that `sha256sum FILE` prints"
        raise RoostError("the sha256 is invalid", received=sha256, where=target, fix=fix)
    if target.is_dir():
        raise RoostError("the target is a folder", where=target, fix="name the file in it")
    if not urls:
        raise RoostError("there is no mirror", where=target, fix="name at least one")
    for url in urls:
        if url.partition(":")[0].lower() not in _SCHEMES:
            fix = f"begin it with one of {', '.join(f'{scheme}://' for scheme in _SCHEMES)}"
            raise RoostError("the mirror is not a URL", received=url, where=target, fix=fix)


def _sha256(path: Path) -> str | None:
    """Returns the checksum of a file; None without a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- the lock ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _exclusive(target: Path) -> Iterator[None]:
    """Holds the lock of ``target``: a second process waits until the first has finished."""
    lock = target.with_name(f".{target.name}.lock")
    fd = _locked(lock, target.name)
    while not _is_current(fd, lock):  # its holder has deleted the file: this lock protects nothing
        os.close(fd)
        fd = _locked(lock, target.name)
    try:
        yield
    finally:
        durable.discard(lock)
        os.close(fd)


def _locked(lock: Path, name: str) -> int:
    fd = durable.open_append(lock)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _print(f"{name}: another process is downloading it; waiting for that")
        fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def _is_current(fd: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), lock.stat())
    except FileNotFoundError:
        return False


def _clear(target: Path) -> None:
    """Removes the partial files of killed downloads of this target."""
    for entry in target.parent.iterdir():
        if durable.is_staging(entry.name) and entry.name.startswith(f".{target.name}.tmp-"):
            durable.discard(entry)


# --- mirrors -----------------------------------------------------------------------------------------------


def _from_mirrors(
    urls: Sequence[str], target: Path, sha256: str, timeout_seconds: float, advice: str
) -> Path:
    """Returns the path of the downloaded and verified file: a staging name in the folder of ``target``."""
    causes = []
    for url in urls:
        staging = durable.staging_name(target)
        _print(f"{target.name}: from {url}")
        try:
            found = durable.write_new(staging, _pieces(url, target.name, timeout_seconds))
            if found.sha256 == sha256:
                return staging
            durable.discard(staging)
            raise RoostError(f"gives another file, {found.size} bytes with sha256 {found.sha256}")
        except RoostError as error:
            causes.append(f"{_mirror_name(url)}: {error}")
            _print(f"{target.name}: {error}")
    by_hand = f"look at the network, or put it there: {target} (sha256 {sha256})"
    # Two lines: many causes make a long line, in which the fix would be hard to find.
    said = f"{target.name} could not be downloaded: {'; '.join(causes)}"
    raise RoostError(f"{said}\nfix: {advice or by_hand}")


def _mirror_name(url: str) -> str:
    """Returns the host of a URL, or a URL without a host whole: enough to distinguish mirrors already
    printed."""
    return url.partition("://")[2].partition("/")[0] or url


def _pieces(url: str, name: str, timeout_seconds: float) -> Iterator[bytes]:
    """Yields the bytes as they arrive.

    Raises:
        RoostError: They do not arrive, arrive too slowly, or end too early.
    """
    with (
        _opened(url, timeout_seconds) as (total, pieces),
        contextlib.closing(TransferProgress(name, total)) as progress,
    ):
        for piece in pieces:
            progress.add(len(piece))
            yield piece


def _opened(url: str, timeout_seconds: float) -> AbstractContextManager[tuple[int | None, Iterator[bytes]]]:
    if urlsplit(url).scheme == "file":
        return _opened_file(url)
    from roost.project import http_transfer  # httpx takes 0.25 s, not to be spent where the file is complete

    return http_transfer.opened(url, timeout_seconds)


@contextlib.contextmanager
def _opened_file(url: str) -> Iterator[tuple[int | None, Iterator[bytes]]]:
    """Opens a file URL; gives the size of the file and its bytes."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise RoostError("file not on local host")
    try:
        with open(url2pathname(parts.path), "rb") as file:
            yield os.fstat(file.fileno()).st_size, iter(functools.partial(file.read, _PIECE_BYTES), b"")
    except (OSError, ValueError) as error:
        raise RoostError(getattr(error, "strerror", None) or str(error)) from None
