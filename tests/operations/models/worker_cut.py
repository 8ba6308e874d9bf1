"""Cuts a real worker at its last step: when it makes the name of its result durable, after the rename."""

from __future__ import annotations

from pathlib import Path

import pytest

_SITE = """
import os, signal
from roost.base import durable

def fault(operation, path):
    if operation == "fsync" and path == {folder!r}:
        if {is_killed}:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(5, "Input/output error", path)

durable.fault = fault
"""


def cut_worker(patch: pytest.MonkeyPatch, site: Path, folder: Path, *, is_killed: bool) -> None:
    """Has the worker killed, or its fsync refused, when it syncs the folder of its result."""
    site.mkdir()
    (site / "sitecustomize.py").write_text(_SITE.format(folder=str(folder), is_killed=is_killed))
    patch.setenv("PYTHONPATH", str(site))
