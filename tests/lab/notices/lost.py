"""Entries of unsent notices, of runs without a guard."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roost.base.system import process_identity
from roost.supervisor.notices import run_notice_list
from roost.supervisor.session_spec import SessionSpec

GONE = {
    "state": "running",
    "host": os.uname().nodename,
    "boot_id": process_identity.boot_id(),
    "pid": 2**22 + 1,
}
"""The record of a session whose supervisor was killed with its guard."""
START = 1000.0


def leave(folder: Path, env: Mapping[str, str], **record: Any) -> str:
    """Adds an entry without a lock, of a run with one session; returns its path.

    Args:
        folder: The package.
        env: The environment of the run.
        record: The record of the session.
    """
    token, package = secrets.token_hex(16), str(folder)
    entry = run_notice_list.add_entry(
        SessionSpec([], package, dict(env), package, 1, "", f"{package}/sessions/1.json", token)
    )
    assert entry is not None
    os.close(entry.fd)
    add(folder, 1, **record)
    return entry.path


def add(folder: Path, number: int, restart_of: int | None = None, **record: Any) -> None:
    """A session of a run."""
    sessions = folder / "sessions"
    sessions.mkdir(parents=True, exist_ok=True)
    (sessions / f"{number}.request.json").write_text(json.dumps({"restart_of": restart_of}))
    (sessions / f"{number}.json").write_text(json.dumps({"started": START, **record}))
