"""The file with the metrics of a session: bounded whatever happens, and never a reason for an error."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from roost.base import durable
from roost.package.results import system_metrics
from roost.package.results.system_metrics import SystemColumns, SystemGap, SystemRow
from roost.supervisor.monitoring import system_file
from roost.supervisor.monitoring.system_file import SystemFile

WEEK = 604_800
NAMES = ["gpu0/power", "session/cores", "host/cpu"]


def row(second: float, power: float | None, seconds: float = 1.0) -> SystemRow:
    values = [power, 2.0, None]
    return SystemRow(1.8e9 + second, seconds, values, values)


def written(path: Path) -> SystemColumns:
    found = system_metrics.read_file(path)
    assert found is not None
    return found


def test_rows_are_read_as_they_were_added(tmp_path: Path) -> None:
    file = SystemFile(tmp_path / "system" / "1.jsonl", NAMES)
    file.add_facts({"cards": [{"id": "GPU-1", "name": "H100"}]})
    for second in range(10):
        file.add(row(second, 300.1234))
    file.add_gap(SystemGap(1.8e9, 1.8e9 + 3, "the driver is gone"))
    file.work(100.0)
    found = written(tmp_path / "system" / "1.jsonl")
    assert len(found.times) == 10, "before the end, too"
    file.finish()
    found = written(tmp_path / "system" / "1.jsonl")
    assert found.names == ["gpu0/power", "session/cores"], "what was not measured is left out"
    assert found.values["gpu0/power"] == [300.1] * 10 == found.peaks["gpu0/power"]
    assert found.cards == [{"id": "GPU-1", "name": "H100"}]
    assert [gap.reason for gap in found.gaps] == ["the driver is gone"]


def test_an_existing_file_is_never_touched(tmp_path: Path) -> None:
    """A project may have a folder of this name."""
    (tmp_path / "1.jsonl").write_text("mine")
    with pytest.raises(FileExistsError):
        SystemFile(tmp_path / "1.jsonl", NAMES)
    assert (tmp_path / "1.jsonl").read_text() == "mine"


def test_a_full_file_merges_neighbours(tmp_path: Path) -> None:
    """Means of means, peaks of peaks, sums of seconds."""
    path = tmp_path / "1.jsonl"
    file = SystemFile(path, NAMES, max_rows=100)
    for second in range(1000):
        file.add(row(second, float(second)))
        if second % 5 == 0:
            file.work(float(second))
            assert len(path.read_bytes().splitlines()) <= 100 + 10
    file.finish()
    found = written(path)
    assert file.row_seconds == 16 and 50 <= len(found.times) <= 110
    assert sum(found.seconds) == pytest.approx(1000)
    assert found.times == sorted(found.times)
    powers = zip(found.values["gpu0/power"], found.seconds, strict=True)
    assert sum((power or 0) * seconds for power, seconds in powers) == pytest.approx(
        sum(range(1000)), rel=1e-3
    )
    assert found.peaks["gpu0/power"][-1] == 999 and found.values["session/cores"] == [2.0] * len(found.times)


def test_a_week_is_below_20_mb(tmp_path: Path) -> None:
    """All 604,800 seconds of a session with one card; the bench has eight."""
    names = system_metrics.column_names(1)
    values = [123.4567 + 7 * n for n in range(len(names))]
    path = tmp_path / "1.jsonl"
    file, largest = SystemFile(path, names), 0
    second = 0
    while second < WEEK:
        seconds = min(4, int(file.row_seconds))  # as a session is measured
        second += seconds
        file.add(SystemRow(1.8e9 + second, seconds, values, values))
        file.work(float(second))
        if second % 1000 == 0:
            largest = max(largest, path.stat().st_size)
    file.finish()
    found = written(path)
    assert max(largest, path.stat().st_size) <= 5 * 2**20, "and with eight cards below 20"
    assert 4000 < len(found.times) <= system_metrics.MAX_ROWS + 100
    assert 60 <= file.row_seconds <= 128 and sum(found.seconds) == pytest.approx(second)
    assert found.times[-1] == 1.8e9 + second >= 1.8e9 + WEEK


def test_many_cards_have_fewer_rows_not_more_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_metrics, "MAX_BYTES", 100_000)
    names = system_metrics.column_names(8)
    values = [99.99] * len(names)
    path = tmp_path / "1.jsonl"
    file = SystemFile(path, names)
    for second in range(5000):
        file.add(SystemRow(1.8e9 + second, 1.0, values, values))
        file.work(float(second))
        assert path.stat().st_size < 150_000
    file.finish()
    assert sum(written(path).seconds) == pytest.approx(5000)


def test_a_full_disk_costs_rows_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "1.jsonl"
    file = SystemFile(path, NAMES)
    file.add(row(0, 1.0))
    file.work(0.0)
    real = os.write

    def half(fd: int, data: bytes) -> int:
        return real(fd, data[: len(data) // 2])

    monkeypatch.setattr(system_file, "_MAX_WAITING_BYTES", 4096)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        for second in range(1, 2000):
            file.add(row(second, 1.0))
            file.work(float(second))
        assert "could be appended" in file.error
        assert sum(map(len, file._waiting)) <= 5000, "memory is bounded, too"
    file.add(row(2000, 7.0))
    file.work(3000.0)
    assert file.error == ""
    file.finish()
    found = written(path)
    assert found.times[0] == 1.8e9 and found.values["gpu0/power"][-1] == 7.0
    assert found.times == sorted(set(found.times))


def test_a_disk_that_is_full_while_rows_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "1.jsonl"
    file = SystemFile(path, NAMES, max_rows=50)
    for second in range(50):
        file.add(row(second, 1.0))
    file.work(0.0)
    with monkeypatch.context() as patch:

        def refuse(fd: int, data: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(durable, "append", refuse)
        file.work(6.0)
        assert file.error == "No space left on device" and file.row_seconds == 1
    assert [one.name for one in tmp_path.iterdir()] == ["1.jsonl"], "nothing is left"
    for second in range(50, 200):
        file.add(row(second, 1.0))
        file.work(100.0 + second)
    file.finish()
    assert sum(written(path).seconds) == pytest.approx(200) and file.error == ""


def test_a_supervisor_that_is_killed_while_rows_are_merged_loses_no_row_that_was_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "1.jsonl"
    file = SystemFile(path, NAMES, max_rows=2000)
    for second in range(2000):
        file.add(row(second, 1.0))
    file.work(0.0)
    file.work(1.0)
    assert len(list(tmp_path.iterdir())) == 2, "the new file is being written"
    assert len(written(path).times) == 2000
