"""The analyzer task: loads a package once, and runs one script after another until it is stopped."""

from __future__ import annotations

import signal
from pathlib import Path

from roost.package.package import PackageFolder


def run_analyzer(package: PackageFolder, folder: Path, session: int) -> str:
    """Runs the analyzer that request.json in ``folder`` describes, until it is asked to stop.

    Args:
        package: The package.
        folder: The session folder of the task.
        session: The number of the session in that folder.
    """
    print(f"analyzer of {package.path.name}, session {session}", flush=True)
    signal.pause()  # SIGTERM ends the process, and the supervisor records that it was asked to
    raise AssertionError("no signal has a handler")
