"""Output streams that survive a full disk: the output is lost, the training continues. And the buffer of a
script's output in an analyzer."""

# Not durable: the output of a process

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class DiskFullTolerantOutput(io.RawIOBase):
    """Writes to a file descriptor and drops what the disk refuses. The first write that succeeds again is
    preceded by a line with the number of lost bytes.

    Args:
        fd: The descriptor.
        order: Held during each write.
    """

    def __init__(self, fd: int, order: contextlib.AbstractContextManager[Any] | None = None) -> None:
        self._fd, self._order = fd, order or contextlib.nullcontext()
        self._lost = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: object, /) -> int:
        view = remaining = memoryview(data).cast("B")  # type: ignore[arg-type]
        with self._order:
            try:
                if self._lost:
                    line = f"\nroost: {self._lost} bytes of output were lost: disk full\n"
                    os.write(self._fd, line.encode())
                    self._lost = 0
                while remaining:
                    remaining = remaining[os.write(self._fd, remaining) :]
            except OSError:
                self._lost += remaining.nbytes
        return view.nbytes


def tolerate_full_disk() -> None:
    """Replaces stdout and stderr of this process by `DiskFullTolerantOutput`. Libraries that write to the
    file descriptors directly are not affected."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        stream.flush()
        setattr(sys, name, _tolerant_stream(DiskFullTolerantOutput(stream.fileno())))


def _tolerant_stream(raw: Any) -> io.TextIOWrapper:
    # Unbuffered: a kill must not lose output.
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


_FLUSH_SECONDS = 0.02
_FIRST_COPY = 100
"""Descriptors from here on are copies, out of the way of what a script closes."""


class BurstBuffer:
    """Collects what a script prints for at most `_FLUSH_SECONDS`: a script that prints a million lines is as
    fast as with a plain file, and who follows the output sees each line at once. stdout and stderr become one
    stream, so that their lines keep their order.

    ::

        buffer = BurstBuffer()
        with buffer:         # the script prints
            ...
        buffer.stream        # unbuffered again

    A process that is forked meanwhile prints unbuffered.
    """

    def __init__(self) -> None:
        sys.stderr.flush()
        self._fd, self._order = sys.stdout.fileno(), threading.RLock()
        self._outputs = [_OutputDescriptor(fd) for fd in {self._fd, sys.stderr.fileno()}]
        self.stream = self._new_stream()
        self._work = threading.Event()
        os.register_at_fork(
            before=self._before_fork, after_in_parent=self._order.release, after_in_child=self._in_child
        )
        threading.Thread(target=self._flush_often, name="flush-output", daemon=True).start()
        self.claim()

    def _new_stream(self) -> io.TextIOWrapper:
        return _tolerant_stream(DiskFullTolerantOutput(self._fd, self._order))

    def claim(self) -> None:
        """Makes the stream stdout and stderr of this process, whatever a script has done to them and to
        their descriptors."""
        for one in self._outputs:
            one.claim()
        if not _is_open(self.stream):
            self.stream = self._new_stream()
        sys.stdout = sys.stderr = self.stream

    def __enter__(self) -> Self:
        self.claim()
        self.stream.reconfigure(write_through=False)
        self._work.set()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._work.clear()
        self.claim()
        with self._order:  # the thread may have taken the last lines, and not written them yet
            self.stream.reconfigure(write_through=True)  # which flushes

    def _flush_often(self) -> None:
        while self._work.wait():
            time.sleep(_FLUSH_SECONDS)
            self._flush()

    def _flush(self) -> None:
        with self._order, contextlib.suppress(ValueError):  # closed by the script
            self.stream.flush()

    def _before_fork(self) -> None:
        self._order.acquire()
        self._flush()

    def _in_child(self) -> None:
        self._order.release()
        with contextlib.suppress(ValueError):
            self.stream.reconfigure(write_through=True)


class _OutputDescriptor:
    """A descriptor of the output, which code of this process may close or lead elsewhere."""

    def __init__(self, fd: int) -> None:
        self._fd, self._stat, self._path = fd, os.fstat(fd), _path_of(fd)
        self._copy = self._new_copy()

    def _new_copy(self) -> int:
        return fcntl.fcntl(self._fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_COPY)

    def claim(self) -> None:
        """Makes the descriptor lead to its file again: by its copy, or by its path."""
        has_copy = self._is_own(self._copy)
        if has_copy and self._is_own(self._fd):
            return
        with contextlib.suppress(OSError):
            if has_copy:
                os.dup2(self._copy, self._fd)
                return
            if not self._is_own(self._fd):
                opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                if opened != self._fd:
                    os.dup2(opened, self._fd)
                    os.close(opened)
            self._copy = self._new_copy()

    def _is_own(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), self._stat)
        except OSError:
            return False


def _path_of(fd: int) -> str:
    """Returns the path of the file of a descriptor; empty if it has none."""
    try:
        path = Path(f"/proc/self/fd/{fd}").readlink()
    except OSError:
        return ""
    return str(path) if path.is_absolute() else ""


def _is_open(stream: io.TextIOWrapper) -> bool:
    try:
        return not stream.closed
    except ValueError:  # its buffer was detached
        return False
