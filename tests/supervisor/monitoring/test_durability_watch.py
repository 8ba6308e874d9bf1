"""The supervisor of a run outside the queue sees that its remote copy does not get further."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from roost.supervisor.monitoring.durability_watch import DurabilityWatch
from tests.package.remote import statuses


def test_a_notice_is_due_once_for_each_time_that_it_begins(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    watch, wall = DurabilityWatch(str(tmp_path / "remote.json")), time.time()
    assert not watch.is_notice_due(0.0, wall=wall)
    statuses.failing(tmp_path, seconds=300)
    assert not watch.is_notice_due(100.0, wall=wall)
    statuses.failing(tmp_path, seconds=700)
    assert not watch.is_notice_due(110.0, wall=wall), "it looks once a minute"
    assert watch.is_notice_due(200.0, wall=wall)
    assert not watch.is_notice_due(300.0, wall=wall)
    statuses.write(tmp_path)
    assert not watch.is_notice_due(400.0, wall=wall)
    statuses.failing(tmp_path, seconds=650)
    assert watch.is_notice_due(500.0, wall=wall)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"error_since": "x"}'])
def test_a_file_that_is_none_says_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "remote.json"
    path.write_text(text)
    assert not DurabilityWatch(str(path)).is_notice_due(0.0, wall=time.time())
