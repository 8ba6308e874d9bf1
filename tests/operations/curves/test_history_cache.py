"""Columns of what was recorded: those of the fold of the lines, cold, from the cache, and while it grows."""

from __future__ import annotations

import math
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roost.operations.cache_folder import cache_folder
from roost.operations.curves import history_cache
from roost.operations.curves.history_cache import DamagedCache, History
from roost.package import records
from roost.package.records import RecordsWriter


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(history_cache, "_REWRITE_BYTES", 0)


def same(folder: Path, *, row_numbers: bool = False) -> History:
    """The history, which must be that of the fold."""
    folded = records.fold(folder)
    expected = {**folded.series, **folded.perf, **folded.stats}
    history = History(folder)
    assert sorted(history.names) == sorted(expected)
    assert (history.starts, history.torn) == (folded.starts, folded.torn)
    for name, (steps, values) in expected.items():
        found = history.series(name)
        assert found[0].tolist() == steps, name
        assert list(map(repr, found[1].tolist())) == [repr(float(value)) for value in values], name
    if row_numbers and folded.rows:
        numbered = History(folder, row_numbers=True)
        assert numbered.names == history.names
        for number in ("epoch", "time"):
            of_step = {row["step"]: row[number] for row in folded.rows if number in row}
            steps, values = numbered.series(number)
            assert dict(zip(steps.tolist(), values.tolist(), strict=True)) == of_step
    return history


def grow(draw: random.Random, folder: Path, number: int, step: int, rows: int) -> int:
    """Another session, with all that may happen to one."""
    step = draw.randint(0, step)
    writer = RecordsWriter(folder / f"{number}.jsonl", session=number, start_step=step)
    for _ in range(rows):
        step += draw.choice([0, 1, 1, 1, 3])
        values = {"train/loss": draw.random(), "perf/step_ms": 1.0}
        if draw.random() < 0.2:
            values |= {"valid/loss": draw.choice([draw.random(), math.nan, math.inf]), "stats/norm": 1.0}
        if draw.random() < 0.1:
            del values["train/loss"]
        writer.row(step, 0, values)
        if draw.random() < 0.03:
            step = draw.randint(0, step)
            writer.go_back(step)
    writer.close()
    if draw.random() < 0.2:
        with (folder / f"{number}.jsonl").open("ab") as file:
            file.write(draw.choice([b'{"step": 1, "tr', b'{"step":100000,"train/loss":3.5}', b"\n\n"]))
    return step


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # each example has a folder of its own
)
@given(draw=st.randoms(use_true_random=True))
def test_is_the_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draw: random.Random) -> None:
    monkeypatch.setattr(history_cache, "_READ_BYTES", 700)
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    step = 0
    for number in range(draw.randint(0, 1), draw.randint(2, 5)):
        step = grow(draw, folder, number, step, draw.randint(0, 80))
        with_numbers = draw.random() < 0.5  # a cache without them is rebuilt, one with them is kept
        same(folder, row_numbers=with_numbers)  # cold for the new session, from the cache for those before
        same(folder, row_numbers=with_numbers)


def test_only_the_new_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    writer = RecordsWriter(folder / "1.jsonl", session=1, start_step=0)
    monkeypatch.setattr(history_cache, "_REWRITE_SHARE", 1 << 40)
    taken: list[int] = []
    add_lines = history_cache.SessionRecords.add_lines

    def counted(self: history_cache.SessionRecords, decoder: history_cache.LineDecoder, data: bytes) -> None:
        taken.append(data.count(b"\n"))
        add_lines(self, decoder, data)

    monkeypatch.setattr(history_cache.SessionRecords, "add_lines", counted)
    for step in range(50):
        writer.row(step, 0, {"a": float(step)})
    assert same(folder).cursor == f"1:{(folder / '1.jsonl').stat().st_size}" and sum(taken) == 51
    taken.clear()
    writer.row(60, 0, {"a": 1.0, "b": 2.0})
    same(folder)
    writer.go_back(20)
    writer.row(21, 0, {"a": 3.0})
    same(folder)
    assert taken == [1, 2]
    same(folder)
    assert taken == [1, 2]
    writer.close()


def test_small_files_are_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_cache, "_REWRITE_BYTES", 1 << 20)
    (tmp_path / "records").mkdir()
    grow(random.Random(0), tmp_path / "records", 1, 0, 50)
    same(tmp_path / "records")
    assert not (cache_folder() / "records").exists()


@pytest.mark.parametrize("change", ["another file", "written over", "shorter", "old", "header", "cut"])
def test_what_is_not_of_this_file_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    grow(random.Random(1), folder, 1, 0, 50)
    same(folder)
    path = folder / "1.jsonl"
    (cache,) = (cache_folder() / "records").iterdir()
    if change == "another file":
        path.rename(tmp_path / "kept")
        grow(random.Random(2), folder, 1, 0, 90)
    elif change == "written over":
        data = path.read_bytes()
        path.write_bytes(data.replace(b'"step_ms":1', b'"step_ms":2')[:-20] + b"5" * 18 + b"}\n" + data)
    elif change == "shorter":
        path.write_bytes(path.read_bytes()[:900])
    elif change == "old":
        monkeypatch.setattr(history_cache, "_FORMAT", history_cache._FORMAT + 1)
    elif change == "header":
        cache.write_bytes(b"\0" * 40 + cache.read_bytes()[40:])
    else:
        cache.write_bytes(cache.read_bytes()[:12])
    same(folder)


def test_a_damaged_column_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    grow(random.Random(1), folder, 1, 0, 50)
    same(folder)
    (cache,) = (cache_folder() / "records").iterdir()
    data = bytearray(cache.read_bytes())
    data[-1] ^= 1
    cache.write_bytes(data)
    with pytest.raises(DamagedCache):
        same(folder)
    history_cache.remove_cached(folder)
    same(folder)


def test_nothing_and_what_is_no_records_file(tmp_path: Path) -> None:
    assert same(tmp_path / "none").names == []
    (tmp_path / "records" / "1.jsonl").mkdir(parents=True)
    (tmp_path / "records" / "2.jsonl").write_text("")
    (tmp_path / "records" / "x.jsonl").write_text("{}")
    history = same(tmp_path / "records")
    assert history.names == [] and history.cursor == "2:0"
    with pytest.raises(KeyError):
        history.series("a")
    shutil.rmtree(tmp_path / "records")
