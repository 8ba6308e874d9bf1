"""Copies rows and media to where people look at many runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from roost.base import durable
from roost.train.hook import Hook, Phase
from roost.train.mirrors.run_identity import RunIdentity
from roost.train.mirrors.sink import SessionEnd

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_SILENT_WAIT_SECONDS = 1.0
"""A wait at the end that is not worth a word."""


class Mirrors(Hook):
    """Keeps a process for each mirror, which reads records and media from their files while they grow. So the
    training has nothing to do for it, and whatever happens to a mirror does nothing to the training.

    Args:
        package: The folder that has ``records`` and ``media``; the mirrors go there, too.
        settings: Those of each kind: ``{"csv": CsvSettings()}``, or what
        `roost.train.mirrors.mirror_kinds.enabled_mirrors`
            makes of a section.
        identity: How the run is called there; by its folder's name when None.
        max_wait_seconds: How long the end waits for them. What is missing then is brought by the next session.
    """

    phase = Phase.REPORT

    def __init__(
        self,
        package: Path | str,
        settings: Mapping[str, Any],
        identity: RunIdentity | None = None,
        *,
        max_wait_seconds: float = 30.0,
    ) -> None:
        self._package = Path(package).absolute()
        self._identity = identity or RunIdentity(name=self._package.name)
        self._max_wait_seconds = max_wait_seconds
        self._wanted = dict(settings)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def on_start(self, trainer: Trainer) -> None:
        self._running = {kind: self._start(kind, settings) for kind, settings in self._wanted.items()}

    def _start(self, kind: str, settings: Any) -> subprocess.Popen[bytes]:
        """In a session of its own, so that it can be ended with all that its library starts."""
        task = {
            "package": str(self._package),
            "kind": kind,
            "settings": msgspec.to_builtins(settings),
            "identity": msgspec.to_builtins(self._identity),
        }
        fd = _unnamed_file(msgspec.json.encode(task))
        try:
            command = [sys.executable, "-P", "-m", "roost.train.mirrors", str(fd)]
            return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[fd], start_new_session=True)
        finally:
            os.close(fd)

    def on_epoch(self, trainer: Trainer) -> None:
        for kind, process in self._running.items():
            if process.poll() is not None:
                print(f"mirror {kind}: {_describe_exit(process)}; it is started again", flush=True)
                _close_stdin(process)
                self._running[kind] = self._start(kind, self._wanted[kind])

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        """Tells all mirrors how it has ended, and waits for them as long as it may."""
        end: SessionEnd = (
            "failed" if trainer.has_failed else "finished" if reason == "finished" else "stopped"
        )
        running, self._running = self._running, {}
        for process in running.values():
            _write_stdin(process, end.encode())
        began = time.monotonic()
        self._wait(running, began + _SILENT_WAIT_SECONDS)
        late = [kind for kind, process in running.items() if process.poll() is None]
        if late:
            print(f"waiting up to {self._max_wait_seconds:g} s for mirrors: {', '.join(late)}", flush=True)
            self._wait(running, began + self._max_wait_seconds)
        for kind, process in running.items():
            if process.poll() is None:
                said = "has not taken all in time; what is missing is brought by the next session"
                print(f"mirror {kind}: {said}", flush=True)
                with contextlib.suppress(ProcessLookupError):  # it has not begun yet
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
                process.wait()
            elif process.returncode:
                print(f"mirror {kind}: {_describe_exit(process)}", flush=True)
            _close_stdin(process)

    def _wait(self, running: dict[str, subprocess.Popen[bytes]], until: float) -> None:
        for process in running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.001))


def _unnamed_file(data: bytes) -> int:
    """The descriptor of a file that holds this and has no name. A pipe takes 64 KiB; with more the training
    would wait until the mirror has imported what it needs."""
    try:
        fd = os.memfd_create("roost-mirror")
    except (AttributeError, OSError):  # not of Linux, an old C library, or a filter of calls
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    durable.append(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _write_stdin(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it has ended
        process.stdin.write(line + b"\n")
        process.stdin.flush()


def _close_stdin(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # what could not be written to one that had ended
        process.stdin.close()


def _describe_exit(process: subprocess.Popen[bytes]) -> str:
    return f"its process ended with {process.returncode}"
