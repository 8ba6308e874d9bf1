"""A session in a folder of its own, and what its small workers may use."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

from roost.supervisor.guard_start import start_session
from roost.supervisor.limits import SessionLimits
from roost.supervisor.session_spec import SessionSpec
from tests import processes
from tests.waiting import MAX_SECONDS, wait_for

# What every worker may use: write its final report, signal that it has reached a place, wait for ever.
PRELUDE = """
import json, os, signal, sys, time
def end(state, exit_code, reason="test", error=None):
    line = {"state": state, "exit_code": exit_code, "reason": reason, "error": error}
    data = json.dumps(line).encode() + b"\\n"
    while data:
        data = data[os.write(int(os.environ["ROOST_REPORT_FD"]), data):]
def here(name, text="1"):
    part = f"{name}.part{os.getpid()}"  # ranks may signal the same place at the same time
    with open(part, "w") as file: file.write(str(text))
    os.rename(part, name)
def forever():
    while True: signal.pause()
"""

# In its own session, twice forked, deaf to SIGTERM, without any variable: nothing but its parents tell
# where it came from.
DAEMON = """
RESTLESS = '''
import os, signal, sys
name = sys.argv[1]
with open(name + ".part", "w") as file: file.write(str(os.getpid()))
os.rename(name + ".part", name)
while True: signal.pause()
'''
def daemon(name):
    if os.fork(): return
    os.setsid()
    if os.fork(): os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    argv = [sys.executable, "-I", "-S", "-c", RESTLESS, name]
    os.execve(sys.executable, argv, {})
def daemons(number):
    for i in range(number): daemon(f"daemon{i}")
    while not all(os.path.exists(f"daemon{i}") for i in range(number)): time.sleep(0.002)
"""


class Session:
    """One session in a folder of its own, started as an operation would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sessions").mkdir()
        self.output = folder / "_output.txt"
        self.file = folder / "sessions" / "1.json"
        self.child: subprocess.Popen[bytes] | None = None
        """The guard, which ends with the session's exit code."""
        self.supervisor_pid = 0
        self.token = secrets.token_hex(16)

    def spec(self, code: str, **env: str) -> SessionSpec:
        return SessionSpec(
            argv=[sys.executable, "-I", "-S", "-c", PRELUDE + DAEMON + code],
            cwd=str(self.folder),
            env={"PATH": os.environ["PATH"], **env},
            package=str(self.folder),
            session=1,
            output=str(self.output),
            session_file=str(self.file),
            token=self.token,
        )

    def start(self, code: str, **env: str) -> subprocess.Popen[bytes]:
        return self.start_spec(self.spec(code, **env))

    def start_spec(
        self, spec: SessionSpec, *, timeout_seconds: float = MAX_SECONDS
    ) -> subprocess.Popen[bytes]:
        lock_fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.child, self.supervisor_pid = start_session(
                spec, lock_fd=lock_fd, timeout_seconds=timeout_seconds
            )
        finally:
            os.close(lock_fd)
        return self.child

    def start_limited(self, code: str, **limits: Any) -> subprocess.Popen[bytes]:
        return self.start_spec(self.spec(code)._replace(limits=SessionLimits(**limits)))

    def end(self, code: str, **env: str) -> dict[str, Any]:
        """Starts it, waits for the end, gives the record."""
        return self.end_spec(self.spec(code, **env))

    def end_spec(self, spec: SessionSpec) -> dict[str, Any]:
        exit_code = self.start_spec(spec).wait(MAX_SECONDS)
        record = self.record()
        assert record["exit_code"] == exit_code
        assert not self.locked()
        return record

    def record(self) -> dict[str, Any]:
        return dict(json.loads(self.file.read_bytes()))

    def locked(self) -> bool:
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def wait_until(self, name: str, *, timeout_seconds: float = MAX_SECONDS) -> str:
        """Waits for the worker's `here(name)`, and for the record, which it may outrun; gives its text."""
        wait_for(lambda: (self.folder / name).exists() and self.file.exists(), timeout_seconds)
        return (self.folder / name).read_text()

    def close(self) -> None:
        """Ends whatever a test that failed has left."""
        processes.kill_all_in(self.folder)
        if self.child is not None:
            self.child.wait(MAX_SECONDS)

    def living(self) -> list[int]:
        """Every process of the machine that lives in the folder, as the worker and all it starts do."""
        return processes.living_in(self.folder)
