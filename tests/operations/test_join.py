"""Taking part where nobody waits for it; where somebody does, in tests/system/test_ranks_lab.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from roost.base import process
from roost.base.errors import Refused
from roost.operations.join import join
from tests.operations.packages import package


def test_nothing_to_take_part_in(tmp_path: Path) -> None:
    here: dict[str, Any] = {"pid": os.getpid(), "start_ticks": process.start_ticks(os.getpid())}
    for made in (
        package(tmp_path, "ended"),
        package(tmp_path, "one", state="running", **here),
    ):
        with pytest.raises(Refused, match="no session of several machines runs in this package"):
            join(made.path)
        assert not list((made.path / "sessions").glob("*.node-*"))
