"""What takes longer than CI may; `make soak` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_thousand_kills() -> None:
    """Its lines go to the terminal with ``-s``; on a failure pytest shows them all."""
    script = Path(__file__).with_name("soak_resume.py")
    assert subprocess.run([sys.executable, str(script), "--kills", "1000"]).returncode == 0
