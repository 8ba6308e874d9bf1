"""What a test may do that is for root."""

from __future__ import annotations

import subprocess


def may_mount() -> bool:
    """Whether disks can be mounted in a private mount namespace."""
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
