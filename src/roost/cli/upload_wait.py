"""The last upload to a remote copy, which continues after a session has ended, as `roost run` shows it."""

from __future__ import annotations

import time
from pathlib import Path

from roost.cli.wait_progress import LoggedStageScreen
from roost.display import terminal
from roost.package.remote import remote_status
from roost.supervisor.guard_start import GuardProcess

_TICK_SECONDS = 0.05


def show_last_upload(package: Path, guard: GuardProcess) -> None:
    """Shows how far the upload is until the guard has ended, which waits for it; then how far the run is
    durable. Ctrl-C ends the waiting only: the guard and the upload continue."""

    def stage() -> str:
        status = remote_status.read(package)
        return "remote copy: " + ("it begins" if status is None else remote_status.describe(status))

    screen = LoggedStageScreen(stage)
    try:
        while guard.poll() is None:
            screen.tick()
            time.sleep(_TICK_SECONDS)
    finally:
        screen.close()
    terminal.print_status(terminal.escape_line(stage()))
