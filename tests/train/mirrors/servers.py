"""A real server of MLflow, and one that never answers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import wait_for


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class MlflowServer:
    """``mlflow server`` on a data base of its own; it may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self.uri = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self._port)]
        command += ["--backend-store-uri", f"sqlite:///{self._folder}/mlflow.db", "--workers", "1"]
        command += ["--artifacts-destination", str(self._folder / "artifacts")]
        log = (self._folder / "server.log").open("ab")
        quiet = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
        self._process = subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, env=quiet, cwd=self._folder
        )
        log.close()
        wait_for(self._answers)

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self._said()
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _said(self) -> str:
        return (self._folder / "server.log").read_text()

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextmanager
def silent_server() -> Iterator[int]:
    """The port of a server that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        yield listening.getsockname()[1]
