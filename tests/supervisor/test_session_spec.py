from __future__ import annotations

import os

import pytest

from roost.supervisor.limits import SessionLimits
from roost.supervisor.session_spec import SessionSpec


def test_the_spec_round_trips() -> None:
    spec = SessionSpec(
        ["a"],
        "/",
        {"B": os.fsdecode(b"\xff")},
        "/p",
        3,
        "/o",
        "/s",
        "f" * 32,
        SessionLimits(wall_seconds=1.5, end_stalled=True),
        lock_fd=4,
        lease_fds=(5, 6),
    )
    assert SessionSpec.from_json(spec.to_json()) == spec
    with pytest.raises(TypeError):
        SessionSpec.from_json('{"argv": [], "surprise": 1}')
    with pytest.raises(TypeError):
        SessionSpec.from_json(spec.to_json().replace("wall_seconds", "walls"))
