from __future__ import annotations

import math
from pathlib import Path

import msgspec

from roost.operations.reading.show import PackageDetails, show
from roost.operations.responses import LogPiece, RowPiece, RunPage, StreamEvent
from roost.serve.http.route import encode_json
from tests.operations.packages import package


def test_pieces_of_streams_come_as_they_were_sent() -> None:
    output = StreamEvent("1", "output", LogPiece("\ufffd", b"\xff"))
    assert encode_json(output.data) == b'{"text":"\xef\xbf\xbd","bytes":"/w=="}'
    assert msgspec.json.decode(encode_json(output), type=StreamEvent[LogPiece]) == output
    rows = StreamEvent("1:9", "rows", RowPiece(1, [{"step": 3, "loss": None}, {"start_step": 2}]))
    assert msgspec.json.decode(encode_json(rows), type=StreamEvent[RowPiece]) == rows


def test_a_run_whose_loss_is_not_finite_is_shown(tmp_path: Path) -> None:
    made = package(tmp_path, rows=({"step": 10, "epoch": 1, "valid/loss": math.nan, "lr": 0.1},))
    found = msgspec.json.decode(encode_json(show(made.path)), type=PackageDetails)
    assert found.metrics["valid/loss"] is None and found.metrics["lr"] == 0.1


def test_a_newer_server_may_say_more() -> None:
    assert msgspec.json.decode(b'{"total": 0, "runs": [], "next": "x"}', type=RunPage) == RunPage(0, [])
