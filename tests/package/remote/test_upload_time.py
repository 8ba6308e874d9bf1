"""How long an upload takes, and how much of it the end of a session must wait for."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.package.checkpoints.checkpoint import Manifest
from roost.package.remote.upload_time import MARGIN, UploadTime
from tests.package.remote import statuses


def test_it_follows_from_the_measured_rate_and_the_size(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    time, files = UploadTime(tmp_path, 300.0), {"x": {"bytes": 100_000_000}}
    newest = Manifest(id=0, step=10, epoch=0, batch=0, line=[(0, 0)], files=files)
    assert time.seconds(newest) is None
    statuses.write(tmp_path)
    assert time.seconds(newest) is None, "nothing was measured"
    statuses.write(tmp_path, mb_per_second=2.0)
    assert time.seconds(newest) == pytest.approx(MARGIN * 50)
    assert time.seconds(None) is None
    statuses.write(tmp_path, mb_per_second=2.0, pending_bytes=60_000_000)
    assert time.seconds(newest) == pytest.approx(MARGIN * 80), "the present upload ends before the last one"


def test_what_is_left_for_it_already_is_not_left_twice(tmp_path: Path) -> None:
    time = UploadTime(tmp_path, 300.0)
    assert time.excess_seconds(100.0, 9000.0) == 0.0
    assert time.excess_seconds(400.0, 9000.0) == 100.0
    assert time.excess_seconds(400.0, 900.0) == 300.0  # of a short session a tenth
