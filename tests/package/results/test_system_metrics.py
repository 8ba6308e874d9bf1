"""Reading the metrics of the system, as roost wrote them and as another program may have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roost.package.results import system_metrics
from roost.package.results.system_metrics import SystemRow, merge

HEADER = json.dumps({"format": 1, "columns": ["gpu0/power", "host/cpu"]})


def file(tmp_path: Path, *lines: str, name: str = "1.jsonl") -> Path:
    (tmp_path / "system").mkdir(exist_ok=True)
    (tmp_path / "system" / name).write_text("\n".join(lines) + "\n")
    return tmp_path


def test_sessions_come_in_order_with_those_of_further_machines(tmp_path: Path) -> None:
    for name in ("10.jsonl", "2.jsonl", "2.node-1.jsonl", "notes.txt", "x.jsonl"):
        file(tmp_path, HEADER, "[100, 1, [5, 6]]", name=name)
    found = system_metrics.read(tmp_path).sessions
    assert [(one.session, one.node) for one in found] == [(2, 0), (2, 1), (10, 0)]
    assert system_metrics.read(tmp_path / "older").sessions == []


def test_a_torn_line_and_what_is_no_row_are_left_out(tmp_path: Path) -> None:
    lines = [
        "[100, 1, [5, 6]]", "[101, 1, [5]]", "[102, 1]", '[103, 1, ["a", 6]]', "[104, -1, [5, 6]]",
        "[1e300, 1, [5, 6]]", "null", "7", "[" * 5000, "[105, 1, [NaN, 6]]", "[106, 1, [5, 6], [7]]",
        '{"gap": "x"}', '{"gap": [1, 2, "why"]}', '{"cards": 7}', '{"host": []}', "[107, 1, [7, 8], [9, 9]]",
        "[108, 1, [7,",
    ]  # fmt: skip
    (found,) = system_metrics.read(file(tmp_path, HEADER, *lines)).sessions
    assert found.times == [100, 105, 107]
    assert found.values == {"gpu0/power": [5, None, 7], "host/cpu": [6, 6, 8]}
    assert found.peaks["host/cpu"] == [6, 6, 9]
    assert [gap.reason for gap in found.gaps] == ["why"] and found.cards == [] and found.host == {}


@pytest.mark.parametrize("columns", [None, 7, ["a", "a"], [1], {"a": 1}, "ab"])
def test_columns_that_are_none(tmp_path: Path, columns: object) -> None:
    found = system_metrics.read(file(tmp_path, json.dumps({"columns": columns}), "[100, 1, [5, 6]]"))
    assert found.sessions == []


def test_a_file_that_is_none_or_too_large_is_left_out(tmp_path: Path) -> None:
    package = file(tmp_path, HEADER, "[100, 1, [5, 6]]")
    path = package / "system" / "1.jsonl"
    with path.open("ab") as large:
        large.truncate(3 * system_metrics.MAX_BYTES)
    assert system_metrics.read(package).sessions == []
    path.unlink()
    path.mkdir()
    assert system_metrics.read(package).sessions == []


def test_merging_weighs_by_time_and_passes_over_what_is_missing() -> None:
    merged = merge(
        SystemRow(10.0, 1.0, [4.0, None, None], [5.0, None, None]),
        SystemRow(13.0, 3.0, [8.0, 7.0, None], [9.0, 7.0, None]),
    )
    assert merged == SystemRow(13.0, 4.0, [7.0, 7.0, None], [9.0, 7.0, None])


def test_a_row_is_short() -> None:
    values = [123.456789, 0.0, None, 5.0]
    assert system_metrics.encode_row(SystemRow(1.5, 1.0, values, values)) == b"[1.5,1.0,[123.5,0,null,5]]\n"


@pytest.mark.parametrize(
    "gap", ["[1" + "0" * 400 + ', 1, "x"]', '[NaN, 2, "x"]', '[1, Infinity, "x"]', '[2, 1, "x"]']
)
def test_a_gap_at_no_time_is_left_out(tmp_path: Path, gap: str) -> None:
    lines = [f'{{"gap": {gap}}}', '{"gap": [1, 2, "why"]}', "[100, 1, [5, 6]]"]
    (found,) = system_metrics.read(file(tmp_path, HEADER, *lines)).sessions
    assert found.gaps == [(1, 2, "why")] and found.times == [100]
