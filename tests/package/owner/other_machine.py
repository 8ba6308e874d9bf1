"""An owner file as a session of another machine writes it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from roost.package.owner import owner_file

LONG_AGO = 200.0
"""Seconds after which a session that gave no sign of life counts as gone."""


def write(package: Path, *, idle: float = 0.0, **fields: Any) -> Path:
    """Puts the file into a package.

    Args:
        package: The package.
        idle: How many seconds ago the session gave a sign of life.
        fields: Other values.
    """
    path = owner_file.path_of(package)
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = {"host": "far", "boot_id": "another boot", "user": "ann", "session": 1, "token": "ab", **fields}
    path.write_text(json.dumps(owner))
    beat(path, idle=idle)
    return path


def beat(path: Path, *, idle: float = 0.0) -> None:
    """Gives the file the time of a heartbeat."""
    at = time.time() - idle
    os.utime(path, (at, at))
