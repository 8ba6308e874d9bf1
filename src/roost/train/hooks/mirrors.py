"""Mirrors of rows and media in TensorBoard, W&B, MLflow and CSV files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from roost.train.hook import Hook, Phase
from roost.train.mirrors import mirror_process
from roost.train.mirrors.mirror_process import MirrorTask
from roost.train.mirrors.sink import RunIdentity, SessionEnd

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_SILENT_WAIT_SECONDS = 1.0
"""The wait at the end that is not announced."""


class Mirrors(Hook):
    """Runs a process for each mirror, which reads records and media from their files while they grow. So
    mirrors cost training nothing, and a failure of a mirror does not affect training.

    Args:
        package: The folder with ``records`` and ``media``; the files of the mirrors are in it, too.
        settings: The settings of each kind, such as ``{"csv": CsvSettings()}``; see
            `roost.train.mirrors.mirror_kinds.enabled_mirrors`.
        identity: The names under which mirrors show the run; named by its folder when None.
        max_wait_seconds: How long the end of the run waits for the mirrors. The next session, or `roost
            mirror --flush`, sends what is missing then.
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
        self._settings = dict(settings)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def on_start(self, trainer: Trainer) -> None:
        self._running = {kind: self._start(kind, settings) for kind, settings in self._settings.items()}

    def _start(self, kind: str, settings: Any) -> subprocess.Popen[bytes]:
        return mirror_process.start(
            MirrorTask(
                package=str(self._package),
                kind=kind,
                settings=msgspec.to_builtins(settings),
                identity=self._identity,
            )
        )

    def on_epoch(self, trainer: Trainer) -> None:
        for kind, process in self._running.items():
            if process.poll() is not None:
                print(f"mirror {kind}: {_describe_exit(process)}; restarting it", flush=True)
                _close_stdin(process)
                self._running[kind] = self._start(kind, self._settings[kind])

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        """Sends the end of the session to all mirrors and waits for them, at most `max_wait_seconds`."""
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
                text = "did not receive all rows in time; `roost mirror --flush` sends the rest"
                print(f"mirror {kind}: {text}", flush=True)
                with contextlib.suppress(ProcessLookupError):  # it has not started yet
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
