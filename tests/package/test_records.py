"""Rows survive what may befall a file, and sessions fold into one history without doubles."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.base import durable
from roost.package import records
from roost.package.records import RecordsWriter, SessionFollower


@pytest.fixture(autouse=True)
def no_fault_left() -> Iterator[None]:
    yield
    durable.fault = None


def write(folder: Path, session: int, start: int, *steps: int) -> None:
    """One session that recorded its own number at each step."""
    writer = RecordsWriter(folder / f"{session}.jsonl", session=session, start_step=start)
    for step in steps:
        writer.row(step, step // 10, {"train/loss": session + step / 1000})
    writer.close()


def values(columns: records.Columns, name: str = "train/loss") -> list[tuple[int, float]]:
    steps, numbers = columns.series.get(name, ([], []))
    return list(zip(steps, numbers, strict=True))


def test_a_row_that_was_written_twice_counts_once_whatever_it_took(tmp_path: Path) -> None:
    for session, times in ((1, {"perf/data_ms": 1.0}), (2, {"perf/validate_s": 1.0})):
        writer = records.RecordsWriter(
            tmp_path / f"{session}.jsonl", session=session, start_step=5 * (session - 1)
        )
        writer.row(5, 1, {"valid/loss": 1.0 / session, **times})
        writer.close()
    (row,) = records.fold(tmp_path).rows
    assert row["valid/loss"] == 0.5


def test_times_are_no_metrics(tmp_path: Path) -> None:
    writer = records.RecordsWriter(tmp_path / "1.jsonl", session=1, start_step=0)
    writer.row(1, 0, {"train/loss": 1.0, "perf/data_ms": 2.0})
    writer.row(2, 0, {"train/loss": 0.5, "perf/data_ms": 3.0, "perf/save_s": math.nan})
    writer.close()
    columns = records.fold(tmp_path)
    assert columns.last() == {"train/loss": 0.5} and columns.series.keys() == {"train/loss"}
    assert columns.perf["perf/data_ms"] == ([1, 2], [2.0, 3.0])
    assert math.isnan(columns.perf["perf/save_s"][1][0])
    assert records.metrics(columns.rows[0]) == {"train/loss": 1.0} and columns.rows[0]["perf/data_ms"] == 2.0


def test_a_row_is_one_readable_line(tmp_path: Path) -> None:
    write(tmp_path, 1, 0, 5)
    header, row = (json.loads(line) for line in (tmp_path / "1.jsonl").read_text().splitlines())
    assert (header["session"], header["start_step"]) == (1, 0)
    assert abs(row.pop("time") - time.time()) < 60
    assert row == {"step": 5, "epoch": 0, "train/loss": 1.005}


def test_values_come_back_exactly_and_non_finite_ones_too(tmp_path: Path) -> None:
    written = {"a": 0.1 + 0.2, "b": 5e-324, "c": math.nan, "d": math.inf, "e": -math.inf, "f": -0.0, "g": 3}
    writer = RecordsWriter(tmp_path / "1.jsonl", session=1, start_step=0)
    writer.row(1, 0, written)
    writer.close()
    columns = records.fold(tmp_path)
    assert {name: repr(float(value)) for name, value in columns.last().items()} == {
        name: repr(float(value)) for name, value in written.items()
    }
    line = json.loads((tmp_path / "1.jsonl").read_text().splitlines()[1])
    assert line["c"] is None and line["nonfinite"] == {"c": "nan", "d": "inf", "e": "-inf"}


def test_a_later_session_cuts_the_earlier_ones_where_it_began(tmp_path: Path) -> None:
    write(tmp_path, 1, 0, 2, 4, 6, 8)
    write(tmp_path, 2, 6, 8, 10, 12)
    write(tmp_path, 3, 4, 6, 14)  # continue -c 4: what both did after step 4 is of another line
    columns = records.fold(tmp_path)
    assert values(columns) == [(2, 1.002), (4, 1.004), (6, 3.006), (14, 3.014)]
    assert columns.starts == [(1, 0), (2, 6), (3, 4)]
    assert [row["step"] for row in columns.rows] == [2, 4, 6, 14]
    assert columns.torn == 0


def test_sessions_are_ordered_by_number_and_other_files_passed_over(tmp_path: Path) -> None:
    write(tmp_path, 2, 0, 1)
    write(tmp_path, 10, 1, 2)
    (tmp_path / "notes.jsonl").write_text("{}\n")
    (tmp_path / "3.jsonl.bak").write_text("{}\n")
    assert values(records.fold(tmp_path)) == [(1, 2.001), (2, 10.002)]


def test_a_session_that_began_anew_hides_all(tmp_path: Path) -> None:
    write(tmp_path, 1, 0, 1, 2)
    write(tmp_path, 2, 0)
    assert records.fold(tmp_path).rows == []


def test_nothing_recorded(tmp_path: Path) -> None:
    assert records.fold(tmp_path / "nowhere").rows == []
    assert records.fold(tmp_path).last() == {}


@pytest.mark.parametrize("cut", [1, 2, 10, 30])
def test_a_torn_last_line_costs_that_row_alone(tmp_path: Path, cut: int) -> None:
    write(tmp_path, 1, 0, 1, 2, 3)
    path = tmp_path / "1.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    write(tmp_path, 2, 3, 4)
    columns = records.fold(tmp_path)
    kept = [1, 2, 3] if cut == 1 else [1, 2]  # the line's end alone is no loss
    assert [step for step, _ in values(columns)] == [*kept, 4]
    assert columns.torn == (0 if cut == 1 else 1)


@pytest.mark.parametrize(
    "damage",
    [
        b"\0" * 4096, b"\xff\xfe\n", b"[]\n", b"3\n", b"null\n", b'{"a": 1}\n', b"[" * 10_000 + b"\n",
        b"\n\n", b'{"step": null}',
        b'{"start_step": "x"}', b'{"step": 1, "nonfinite": {"a": "b"}}', b'{"step": "1"}',
    ],
)  # fmt: skip
def test_damage_in_the_middle_costs_its_line_alone(tmp_path: Path, damage: bytes) -> None:
    write(tmp_path, 1, 0, 1)
    path = tmp_path / "1.jsonl"
    path.write_bytes(path.read_bytes() + damage.rstrip(b"\n") + b"\n" + b'{"step": 2, "train/loss": 0.5}\n')
    columns = records.fold(tmp_path)
    assert values(columns) == [(1, 1.001), (2, 0.5)]
    assert columns.torn == (0 if damage == b"\n\n" else 1)


@settings(deadline=None)  # each write is synced: the disk decides how long
@given(st.integers(0), st.integers(0, 255), st.integers(0))
def test_no_cut_or_changed_byte_does_more_than_lose_rows(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("records")
    write(folder, 1, 0, 1, 2, 3)
    write(folder, 2, 2, 3, 4)
    path = folder / "1.jsonl"
    content = bytearray(path.read_bytes())
    content[place % len(content)] = value
    path.write_bytes(content[: len(content) - cut % 100])
    columns = records.fold(folder)
    assert values(columns)[-1] == (4, 2.004)


# --- a full disk ------------------------------------------------------------------------------------------


def test_rows_that_could_not_be_written_wait_for_space(tmp_path: Path) -> None:
    writer = RecordsWriter(tmp_path / "1.jsonl", session=1, start_step=0)

    def full(operation: str, path: str) -> None:
        raise OSError(errno.ENOSPC, operation)

    writer.row(1, 0, {"a": 1.0})
    durable.fault = full
    for step in (2, 3):
        with pytest.raises(OSError, match="write"):
            writer.row(step, 0, {"a": float(step)})
    with pytest.raises(OSError, match="write"):
        writer.sync()
    assert len(records.fold(tmp_path).rows) == 1
    durable.fault = None
    writer.row(4, 0, {"a": 4.0})
    writer.close()
    columns = records.fold(tmp_path)
    assert values(columns, "a") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert columns.torn == 0


def test_half_a_line_on_a_full_disk_is_passed_over_and_its_row_written_anew(tmp_path: Path) -> None:
    """The limit is once at every byte of a line, including its end."""
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from roost.package.records import RecordsWriter\n"
        "for cut in range(60):\n"
        "    folder = Path(sys.argv[1]) / str(cut)\n"
        "    folder.mkdir()\n"
        "    writer = RecordsWriter(folder / '1.jsonl', session=1, start_step=0)\n"
        "    writer.row(1, 0, {'a': 1.0})\n"
        "    size = (folder / '1.jsonl').stat().st_size\n"
        "    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (size + cut, hard))\n"
        "    failed = 0\n"
        "    for step in (2, 3):\n"
        "        try:\n"
        "            writer.row(step, 0, {'a': float(step)})\n"
        "        except OSError:\n"
        "            failed += 1\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "    writer.row(4, 0, {'a': 4.0})\n"
        "    writer.close()\n"
        "    print(failed)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    failed = [int(line) for line in done.stdout.split()]
    assert failed[0] == 2 and 1 in failed
    for cut in range(60):
        columns = records.fold(tmp_path / str(cut))
        assert values(columns, "a") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)], cut
        assert len(columns.rows) == 4, cut
        assert columns.torn <= 2


def test_a_writer_that_cannot_begin_leaks_nothing(tmp_path: Path) -> None:
    folder = Path("/proc/self/fd")
    before = len(list(folder.iterdir())) if folder.is_dir() else 0
    count = 0

    def third(operation: str, path: str) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise OSError(errno.ENOSPC, operation)

    durable.fault = third
    with pytest.raises(OSError, match="write"):
        RecordsWriter(tmp_path / "1.jsonl", session=1, start_step=0)
    assert (len(list(folder.iterdir())) if folder.is_dir() else 0) == before


def test_closing_closes_even_when_the_disk_is_full(tmp_path: Path) -> None:
    writer = RecordsWriter(tmp_path / "1.jsonl", session=1, start_step=0)
    fd = writer._fd

    def broken(operation: str, path: str) -> None:
        raise OSError(errno.EIO, operation)

    durable.fault = broken
    with pytest.raises(OSError, match="fsync"):
        writer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_killed_writer_loses_no_row_that_was_written(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from roost.package.records import RecordsWriter\n"
        "writer = RecordsWriter(Path(sys.argv[1]), session=1, start_step=0)\n"
        "for step in range(1, 101):\n"
        "    writer.row(step, 0, {'a': 0.5})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "1.jsonl")])
    assert done.returncode == -9
    assert len(records.fold(tmp_path).rows) == 100


# --- a rollback -------------------------------------------------------------------------------------------


def go_back(folder: Path, session: int, start: int, *steps: int) -> None:
    """One session; a negative step is where it goes back to. Rows have the number of the turn."""
    writer = RecordsWriter(folder / f"{session}.jsonl", session=session, start_step=start)
    turn = 0
    for step in steps:
        if step < 0:
            turn += 1
            writer.go_back(-step)
        else:
            writer.row(step, 0, {"train/loss": session + turn / 10})
    writer.close()


def test_what_a_session_went_back_behind_does_not_count(tmp_path: Path) -> None:
    go_back(tmp_path, 1, 0, 2, 4, 6, 8, -5, 6, 8)
    columns = records.fold(tmp_path)
    assert values(columns) == [(2, 1.0), (4, 1.0), (6, 1.1), (8, 1.1)]
    assert columns.starts == [(1, 0)] and columns.torn == 0
    assert [row["train/loss"] for row in records.read_tail(tmp_path / "1.jsonl")] == [1.0, 1.0, 1.1, 1.1]


def test_it_may_go_back_several_times_also_to_the_very_step_of_a_row(tmp_path: Path) -> None:
    go_back(tmp_path, 1, 0, 2, 4, 6, -4, 6, 8, -2, 4, -2)
    assert values(records.fold(tmp_path)) == [(2, 1.0)]
    assert [row["step"] for row in records.read_tail(tmp_path / "1.jsonl")] == [2]


def test_a_later_session_after_a_rollback(tmp_path: Path) -> None:
    go_back(tmp_path, 1, 0, 2, 4, 6, -4, 6, 8)
    go_back(tmp_path, 2, 6, 8, -6, 8, 10)
    assert values(records.fold(tmp_path)) == [(2, 1.0), (4, 1.0), (6, 1.1), (8, 2.1), (10, 2.1)]


def test_behind_its_own_beginning(tmp_path: Path) -> None:
    """The checkpoint that the session went on from was damaged meanwhile."""
    go_back(tmp_path, 1, 0, 2, 4, 6)
    go_back(tmp_path, 2, 6, 8, -2, 4, 6)
    columns = records.fold(tmp_path)
    assert values(columns) == [(2, 1.0), (4, 2.1), (6, 2.1)]
    assert columns.starts == [(1, 0), (2, 2)]


def test_the_tail_of_a_long_file_after_a_rollback(tmp_path: Path) -> None:
    go_back(tmp_path, 1, 0, *range(1, 3001), -2990, *range(2991, 2996))
    found = [row["step"] for row in records.read_tail(tmp_path / "1.jsonl")]
    assert found == list(range(found[0], 2996))


# --- the newest rows --------------------------------------------------------------------------------------


def test_the_tail_is_the_end_of_a_long_file(tmp_path: Path) -> None:
    write(tmp_path, 1, 0, *range(1, 5001))
    path = tmp_path / "1.jsonl"
    found = records.read_tail(path)
    assert path.stat().st_size > 1 << 17 and found[-1]["step"] == 5000
    assert [row["step"] for row in found] == list(range(found[0]["step"], 5001))
    assert records.metrics(found[-1]) == {"train/loss": 6.0}


def test_the_tail_of_a_short_file_and_of_none(tmp_path: Path) -> None:
    write(tmp_path, 1, 0, 1, 2)
    path = tmp_path / "1.jsonl"
    path.write_bytes(path.read_bytes()[:-1])  # the line's end alone is no loss
    assert [row["step"] for row in records.read_tail(path)] == [1, 2]
    assert records.read_tail(tmp_path) == records.read_tail(tmp_path / "2.jsonl") == []


def test_a_follower_gives_each_row_once_whatever_the_pieces(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    write(tmp_path / "whole", 1, 0, 1, 2, 3)
    content = (tmp_path / "whole" / "1.jsonl").read_bytes()
    path = tmp_path / "1.jsonl"
    follower = records.SessionFollower(path)
    assert follower.new_rows() == []
    found = []
    for at in range(0, len(content), 7):
        with path.open("ab") as file:
            file.write(content[at : at + 7])
        found += follower.new_rows()
    header, *rows = found
    assert header["start_step"] == 0 and not records.metrics(header)
    assert rows == records.fold(tmp_path / "whole").rows
    assert follower.new_rows() == []


@pytest.mark.parametrize("value", ['"low"', "null", "true", "[1]", "{}", "1" + "0" * 400])
def test_what_is_no_number_is_no_metric(tmp_path: Path, value: str) -> None:
    row = records.decode_row(b'{"step": 1, "a": %s, "b": 2}' % value.encode())
    assert records.metrics(row) == {"b": 2}


def test_ten_thousand_rows_are_read_quickly(tmp_path: Path) -> None:
    for session in range(10):
        writer = RecordsWriter(tmp_path / f"{session}.jsonl", session=session, start_step=session * 1000)
        for step in range(session * 1000 + 1, session * 1000 + 1001):
            writer.row(step, 0, {f"train/m{n}": step / (n + 1) for n in range(10)})
        writer.close()
    begin = time.perf_counter()
    columns = records.fold(tmp_path)
    seconds = time.perf_counter() - begin
    assert len(columns.rows) == 10_000 and len(columns.series) == 10
    assert values(columns, "train/m1")[-1] == (10_000, 5_000.0)
    assert seconds < 2  # 0.1 s; the rest is for a busy machine


def test_statistics_are_values_apart(tmp_path: Path) -> None:
    writer = RecordsWriter(tmp_path / "1.jsonl", session=1, start_step=0)
    writer.row(1, 0, {"train/loss": 1.0, "stats/grad_norm": 2.0, "stats/grad_norm/a.b": math.inf})
    writer.close()
    columns = records.fold(tmp_path)
    assert columns.last() == records.metrics(columns.rows[0]) == {"train/loss": 1.0}
    assert columns.stats == {"stats/grad_norm": ([1], [2.0]), "stats/grad_norm/a.b": ([1], [math.inf])}
    assert columns.rows[0]["stats/grad_norm"] == 2.0


def test_a_line_that_no_session_writes_is_read_in_pieces_and_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_MAX_LINE_BYTES", 1 << 17)
    path = tmp_path / "1.jsonl"
    long = {"step": 2, "text": "a" * (1 << 19)}
    rows = [{"session": 1, "start_step": 0}, {"step": 1, "text": "a" * 100_000}, long, {"step": 3}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    follower = records.SessionFollower(path)
    assert [row.get("step") for row in follower.new_rows()] == [None, 1, 3]
    with path.open("a") as file:
        file.write('{"step": 4, "te')
    assert follower.new_rows() == []
    with path.open("a") as file:
        file.write('xt": ""}\n{"step": 5}\n')
    assert [row["step"] for row in follower.new_rows()] == [4, 5]


def test_the_order_of_the_samples_is_that_of_the_newest_beginning(tmp_path: Path) -> None:
    assert records.data_order(tmp_path) is None and records.data_order(tmp_path / "none") is None
    for session, start, order in ((1, 0, "a"), (2, 50, None), (3, 0, "b"), (4, 20, None)):
        path = tmp_path / f"{session}.jsonl"
        RecordsWriter(path, session=session, start_step=start, data_order=order).close()
        assert records.start_step(path) == start
        assert records.data_order(tmp_path) == ("a" if session < 3 else "b")
    columns = records.fold(tmp_path)
    assert columns.torn == 0 and columns.starts == [(1, 0), (2, 50), (3, 0), (4, 20)]
    for header in (b'{"session":9,"start_step":0}\n', b'{"session":9,"start_step":0,"data_order":[3]}\n'):
        (tmp_path / "9.jsonl").write_bytes(header)
        assert records.data_order(tmp_path) is None
    (tmp_path / "9.jsonl").write_bytes(b'{"step": 3, "data_order": "x"}\n')
    assert records.data_order(tmp_path) == "b"


def test_of_a_long_file_only_the_end_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    writer = RecordsWriter(path, session=1, start_step=0)
    for step in range(1, 1001):
        writer.row(step, 0, {"loss": 1.0})
    follower = SessionFollower(path, tail_bytes=1000)
    steps = [row["step"] for row in follower.new_rows()]
    assert steps == list(range(1001 - len(steps), 1001)) and 5 < len(steps) < 40
    assert follower.new_rows() == []
    writer.row(1001, 0, {"loss": 1.0})
    writer.close()
    assert [row["step"] for row in follower.new_rows()] == [1001]
    whole = SessionFollower(path, tail_bytes=1 << 20).new_rows()
    assert whole == SessionFollower(path).new_rows() and len(whole) == 1002
