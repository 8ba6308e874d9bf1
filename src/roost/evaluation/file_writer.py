"""Files of samples (pictures, sound, arrays, text, any file), written by a bounded pool of threads.

The pool takes a file only while less than `MAX_PENDING_BYTES` wait, so a slow disk slows the evaluation down
and does not fill the memory. A file is durable when `FileWriter.wait` returns: the part of rows that names it
is written after that.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from roost.base import durable
from roost.base.errors import ContractError
from roost.package.results.evaluations.evaluation_folder import FILES
from roost.train.reporting.array_bytes import as_array, npy_bytes
from roost.train.reporting.media_files import Media, encode_files

MAX_PENDING_BYTES = 256 * 2**20
"""The bytes of values that wait for a thread; a single larger value is taken when no other waits."""
_NUM_THREADS = 4
_COPY_BYTES = 2**20
_MAX_NAME_BYTES = 180
"""Of a file name in front of its suffix; file systems take 255, and a staging name adds 20."""
_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=,@")

_Contents = dict[str, bytes]
"""The bytes of the files of one value, by suffix; the first one is shown."""


def safe_name(id_: Any, name: str) -> str:
    """Returns the file name of a sample's value without its suffix: ``<id>.<name>``.

    Bytes that not every file system takes become ``%XX``, so that different ids keep different names; a name
    that is too long is cut and ends with a digest of the whole.
    """
    made = f"{_escape(str(id_), keeps_dots=True)}.{_escape(name)}"
    if len(made) <= _MAX_NAME_BYTES:
        return made
    digest = hashlib.sha256(made.encode()).hexdigest()[:16]
    return f"{made[: _MAX_NAME_BYTES - 17]}-{digest}"


def _escape(text: str, *, keeps_dots: bool = False) -> str:
    data = text.encode(errors="surrogatepass")
    dots = b"." if keeps_dots else b""
    return "".join(
        chr(byte) if byte in _SAFE or (byte in dots and place) else f"%{byte:02X}"
        for place, byte in enumerate(data)
    )


def is_file_value(value: object) -> bool:
    """Whether a value of a sample becomes a file whatever its size."""
    return isinstance(value, Media | Path) or hasattr(type(value), "savefig")


class FileWriter:
    """Writes the files of one cell's samples. A context manager.

    Args:
        cell: The folder of the cell.
        num_threads: The threads that encode and write.
        max_pending_bytes: How many bytes of values may wait for a thread.
    """

    def __init__(
        self, cell: Path, *, num_threads: int = _NUM_THREADS, max_pending_bytes: int = MAX_PENDING_BYTES
    ) -> None:
        self._folder = cell / FILES
        self._num_threads, self._max_bytes = num_threads, max_pending_bytes
        self._state = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._pending_bytes = self._unfinished = 0
        self._unsynced, self._closed = False, False
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            with self._state:
                self._closed = True
                self._waiting.clear()
                self._state.notify_all()
            for thread in self._threads:
                thread.join()

    def add(self, id_: Any, name: str, value: Any) -> dict[str, str]:
        """Takes a value and returns ``{"file": path in the cell's folder}`` for the row of its sample.

        Waits while too much is pending. A tensor is copied to the host, a sync point; a figure of matplotlib
        is drawn at once, because drawing is not safe in threads.

        Raises:
            ContractError: The value is none of these, or a path names no file.
            Exception: An earlier file could not be written; a note names its sample.
        """
        job = _Job(id_, name, _frozen(id_, name, value), self._folder / safe_name(id_, name))
        with self._state:
            self._start()
            while self._pending_bytes and self._pending_bytes + job.num_bytes > self._max_bytes:
                if self._error is not None:
                    break
                self._state.wait()
            self._raise_error()
            self._pending_bytes += job.num_bytes
            self._unfinished += 1
            self._waiting.append(job)
            self._state.notify_all()
        return {"file": f"{FILES}/{job.path.name}.{job.suffix}"}

    def wait(self) -> None:
        """Returns when all files that were added are durable.

        Raises:
            Exception: One could not be written; a note names its sample.
        """
        with self._state:
            while self._unfinished and self._error is None:
                self._state.wait()
            self._raise_error()
            unsynced, self._unsynced = self._unsynced, False
        if unsynced:
            durable.fsync_folder(self._folder)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _start(self) -> None:
        if not self._threads:
            durable.make_folder(self._folder, exist_ok=True)
            names = [f"files-{number}" for number in range(self._num_threads)]
            self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
            for thread in self._threads:
                thread.start()

    def _work(self) -> None:
        while True:
            with self._state:
                while not self._waiting and not self._closed:
                    self._state.wait()
                if not self._waiting:
                    return
                job = self._waiting.popleft()
            error: BaseException | None = None
            try:
                job.write()
            except Exception as caught:  # noqa: BLE001  - raised by the next call of `add` or `wait`
                error = caught
                error.add_note(f"the file of {job.name!r} of sample {job.id!r}")
            with self._state:
                self._error = self._error or error
                self._pending_bytes -= job.num_bytes
                self._unfinished -= 1
                self._unsynced = True
                self._state.notify_all()


class _Value:
    """A value that no longer changes: its size in memory, the suffix of its file, and its bytes."""

    def __init__(self, num_bytes: int, suffix: str, contents: Callable[[], _Contents] | Path) -> None:
        self.num_bytes, self.suffix, self.contents = num_bytes, suffix, contents


class _Job:
    def __init__(self, id_: Any, name: str, value: _Value, path: Path) -> None:
        self.id, self.name, self._value, self.path = id_, name, value, path
        self.num_bytes, self.suffix = value.num_bytes, value.suffix

    def write(self) -> None:
        """Writes the files. Their folder is synced by `FileWriter.wait`."""
        contents = self._value.contents
        if isinstance(contents, Path):
            self._copy(contents)
            return
        for suffix, data in contents().items():
            final = self.path.with_name(f"{self.path.name}.{suffix}")
            durable.write_unsynced(final, data)
            durable.sync_file(final)

    def _copy(self, source: Path) -> None:
        final = self.path.with_name(f"{self.path.name}.{self.suffix}")
        staging = durable.staging_name(final)
        with source.open("rb") as opened, durable.NewFile(staging) as made:
            for piece in _pieces(opened):
                made.write(piece)
        durable.rename(staging, final)


def _pieces(opened: Any) -> Iterator[bytes]:
    while piece := opened.read(_COPY_BYTES):
        yield piece


def _frozen(id_: Any, name: str, value: Any) -> _Value:
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        array = _own_copy(value)
        if array.dtype.hasobject:
            raise _refused(id_, name, f"an array of {array.dtype}", "return an array of numbers")
        return _Value(array.nbytes, "npy", lambda: {"npy": npy_bytes(array)})
    if isinstance(value, Path):
        if not value.is_file():
            raise _refused(id_, name, str(value), "return the path of a file that exists", "names no file")
        return _Value(0, _escape(value.suffix.lstrip(".")) or "bin", value.absolute())
    if isinstance(value, Media):
        return _frozen_media(id_, name, value)
    if hasattr(type(value), "savefig"):
        made = encode_files(value)
        return _Value(sum(map(len, made.values())), next(iter(made)), lambda: made)
    fix = "return arrays, tensors, roost.Media, figures of matplotlib, or paths of files"
    raise _refused(id_, name, type(value).__name__, fix)


def _frozen_media(id_: Any, name: str, media: Media) -> _Value:
    data = media.data
    if isinstance(data, torch.Tensor | np.ndarray):
        data = _own_copy(data)
    size = data.nbytes if isinstance(data, np.ndarray) else len(data) if hasattr(data, "__len__") else 0
    kept = Media(media.kind, data, media.rate, media.bins)
    suffixes = {"image": "png", "audio": "wav", "histogram": "json", "matrix": "png", "text": "txt"}
    empty_matrix = media.kind == "matrix" and isinstance(data, np.ndarray) and not data.size

    def contents() -> _Contents:
        try:
            return encode_files(kept)
        except ContractError as error:
            raise _refused(id_, name, f"{media.kind} of {_shape(data)}", error.fix, error.message) from None

    return _Value(size, "npy" if empty_matrix else suffixes.get(media.kind, "bin"), contents)


def _shape(data: Any) -> str:
    return f"shape {tuple(data.shape)}" if isinstance(data, np.ndarray) else type(data).__name__


def _own_copy(value: Any) -> np.ndarray[Any, Any]:
    """Returns a copy on the host: the model may use the memory of the value again for its next batch."""
    if isinstance(value, torch.Tensor):
        on_host = as_array(value)
        return on_host.copy() if value.device.type == "cpu" else on_host
    return np.array(value)


def _refused(
    id_: Any, name: str, received: str, fix: str | None, message: str = "cannot become a file"
) -> ContractError:
    return ContractError(message, setting=f"test()[{name!r}] of sample {id_!r}", received=received, fix=fix)
