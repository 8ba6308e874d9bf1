"""Starting, finding and ending the server of this user."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from roost.base import process
from roost.base.errors import RoostError
from roost.lab import place
from roost.serve import presence
from roost.serve.presence import About

LOG = "server.log"
_START_SECONDS = 30.0
_END_SECONDS = 20.0
_TICK_SECONDS = 0.02


def command(folder: Path, port: int | None, roots: Sequence[Path]) -> list[str]:
    """What is run as the server's own process."""
    given = ["--port", str(port)] if port is not None else []
    shown = [part for root in roots for part in ("--root", str(root))]
    return [sys.executable, "-P", "-m", "roost.serve.process", str(folder), *given, *shown]


def start(port: int | None = None, roots: Sequence[Path] = ()) -> About:
    """Starts the server in the background, and waits until it takes requests.

    Args:
        port: That was asked for; None: the usual one, or the next free one.
        roots: Folders of packages to show beside those that tasks were ever submitted from.

    Raises:
        Refused: The lab's folder will not do.
        RoostError: It did not start.
    """
    folder = place.folder()
    place.prepare(folder)
    ready_fd, its_fd = os.pipe()
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(folder / LOG, flags, 0o600), "ab") as log:
            child = subprocess.Popen(
                [*command(folder, port, roots), "--ready", str(its_fd)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.PIPE,
                cwd="/",
                start_new_session=True,
                pass_fds=[its_fd],
            )
    finally:
        os.close(its_fd)
    poller = select.poll()
    poller.register(ready_fd, select.POLLIN)
    line = os.read(ready_fd, 16) if poller.poll(_START_SECONDS * 1000) else b""
    os.close(ready_fd)
    found = presence.about(folder)
    if line and found is not None:
        child.returncode = 0  # it outlives us: nobody here waits for its end
        assert child.stderr is not None
        child.stderr.close()
        return found
    child.kill()
    said = child.communicate()[1].decode(errors="replace").strip().removeprefix("roost: ")
    raise RoostError(said or f"the server said nothing within {_START_SECONDS:g} s", where=folder / LOG)


def stop() -> About | None:
    """Ends the server, and waits for that; whatever runs goes on. Gives which it was, None if there was none.

    Raises:
        RoostError: It does not end.
    """
    found = presence.about(place.folder())
    if found is None:
        return None
    process.send(signal.SIGTERM, found.pid, found.start_ticks, found.boot_id)
    deadline = time.monotonic() + _END_SECONDS
    while found.lives:
        if time.monotonic() > deadline:
            fix = f"kill -9 {found.pid}: nothing is lost"
            raise RoostError(f"the server (pid {found.pid}) does not end", fix=fix)
        time.sleep(_TICK_SECONDS)
    return found
