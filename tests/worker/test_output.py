"""Prints of a worker on a disk that refuses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import resource, sys
from roost.worker import output
output.protect()
print("before")
soft = {limit}
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))
print("x" * 1000)
print("error", file=sys.stderr)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print("after é")
"""


@pytest.mark.parametrize("limit", [7, 100])
def test_a_full_disk_loses_output_and_says_so_but_ends_nothing(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "output"
    with path.open("ab") as file:
        code = CODE.format(limit=limit)
        result = subprocess.run([sys.executable, "-c", code], stdout=file, stderr=file, timeout=30)
    assert result.returncode == 0
    text = path.read_text()
    assert text.startswith("before\n") and text.endswith("after é\n")
    assert "bytes of output were lost: disk full" in text
