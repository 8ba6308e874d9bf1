from __future__ import annotations

import math
from pathlib import Path

import msgspec

from roost.api.answers import Event, LogPiece, Rows, RunPage
from roost.operations.show import Shown, show
from roost.serve import following
from roost.serve.route import encoded
from tests.api.shapes import shape
from tests.operations.packages import package


def test_pieces_of_streams_are_those_that_are_sent() -> None:
    assert shape(Event) == shape(following.Event)
    found = msgspec.json.decode(b'{"text": "\xef\xbf\xbd", "bytes": "/w=="}', type=LogPiece)
    assert found == LogPiece("\ufffd", b"\xff")
    rows = msgspec.json.decode(
        b'{"session": 1, "rows": [{"step": 3, "loss": null}, {"start_step": 2}]}', type=Rows
    )
    assert rows.rows == [{"step": 3, "loss": None}, {"start_step": 2}]


def test_a_run_whose_loss_is_not_finite_is_shown(tmp_path: Path) -> None:
    made = package(tmp_path, rows=({"step": 10, "epoch": 1, "valid/loss": math.nan, "lr": 0.1},))
    found = msgspec.json.decode(encoded(show(made.path)), type=Shown)
    assert found.metrics["valid/loss"] is None and found.metrics["lr"] == 0.1


def test_a_newer_server_may_say_more() -> None:
    assert msgspec.json.decode(b'{"total": 0, "runs": [], "next": "x"}', type=RunPage) == RunPage(0, [])
