"""The parts of the bar."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.cli.bar import Eta, Rows


def test_the_newest_value_of_every_metric(tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    rows = Rows(path)
    assert rows.text() == ""
    path.write_text(
        '{"session": 1, "start_step": 0, "time": 1}\n{"step": 1, "epoch": 0, "time": 2, "a": 0.5, "b": 1}\n'
    )
    assert rows.text() == "a 0.5  b 1"
    with path.open("a") as file:
        file.write('{"step": 2, "epoch": 0, "time": 3, "a": nu')
    assert rows.text() == "a 0.5  b 1"
    with path.open("a") as file:
        file.write(
            'll, "nonfinite": {"a": "nan"}}\n{"half\n{"step": 3, "epoch": 0, "time": 4, "b": 1234567}\n'
        )
    assert rows.text() == "a nan  b 1.235e+06"


def test_the_time_that_is_left() -> None:
    eta = Eta()
    assert eta.seconds(0.0, 0.5) is None
    assert eta.seconds(0.5, 0.51) is None  # too early to tell
    assert eta.seconds(10.0, 0.6) == pytest.approx(40.0)
    for second in range(11, 100):  # it has become ten times slower
        left = eta.seconds(float(second), 0.6 + (second - 10) * 0.001)
    assert left is not None and 300 < left < 320


def test_a_run_that_stands_still() -> None:
    eta = Eta()
    assert [eta.seconds(float(second), 0.5) for second in range(5)] == [None] * 5
