"""The status of a remote copy, as the process that uploads writes it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from roost.package.remote import remote_status
from roost.package.remote.remote_status import RemoteStatus


def write(package: Path, *, step: int | None = 20, **fields: Any) -> RemoteStatus:
    """Puts the status into a package: durable up to ``step``."""
    now = time.time()
    given: dict[str, Any] = {"state": "idle", "time": now, "taken": now, "url": "s3://bucket/runs", **fields}
    status = RemoteStatus(step=step, **given)
    remote_status.write(package, status)
    return status


def failing(package: Path, *, seconds: float, step: int | None = 20) -> RemoteStatus:
    """As `write`, of a store that has refused for so long."""
    since = time.time() - seconds
    return write(package, step=step, state="failing", error="the store does not answer", error_since=since)
