from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from roost.base import durable
from roost.base.errors import ConfigError, NotFound, Refused, UsageError
from roost.operations.curves.export_records import export_records
from roost.train.mirrors import mirror_kinds
from tests.messages import Messages
from tests.operations.packages import ROWS, TIMES, package, record_rows, session
from tests.train.mirrors.recorded import by_step, events, folded, narrow, scalars, show_all, table


def test_csv_reads_back_bit_for_bit(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", rows=[{**row, **TIMES} for row in ROWS])
    done = export_records(made.path, kind="csv", output=tmp_path / "out.csv")
    assert table(tmp_path / "out.csv") == folded(made.path)
    assert (done.rows, done.kind, done.path) == (3, "csv", str(tmp_path / "out.csv"))
    assert done.names[:3] == ["train/loss", "valid/loss", "lr"] and "perf/data_ms" in done.names


def test_parquet_reads_back_bit_for_bit(tmp_path: Path) -> None:
    from pyarrow import parquet

    rows = [*ROWS, {"step": 40, "epoch": 4, "train/loss": float("nan"), "lr": float("-inf")}]
    made = package(tmp_path / "runs", rows=rows, checkpoints=False)
    export_records(made.path, kind="parquet", output=tmp_path / "out.parquet")
    found = parquet.read_table(tmp_path / "out.parquet")
    assert str(found.schema.field("step").type) == "int64"
    assert str(found.schema.field("train/loss").type) == "double"
    assert found["valid/loss"].to_pylist() == [1.5, 0.5, 0.75, None], "no value is not NaN"
    assert [str(value) for value in found["train/loss"].to_pylist()] == ["2.0", "1.0", "0.5", "nan"]
    assert found["time"].to_pylist() == [row["time"] for row in made.records().rows]


def test_tensorboard_reads_back_with_its_media(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    show_all(made.path, 20)
    export_records(made.path, kind="tensorboard", output=tmp_path / "logs")
    assert scalars(tmp_path / "logs") == narrow(folded(made.path))
    assert events(tmp_path / "logs").Tags()["images"] == ["m", "p"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "tensorboard"])
def test_while_it_runs_from_another_place_and_of_several_sessions(tmp_path: Path, kind: str) -> None:
    made = package(tmp_path / "runs", state="stopped")
    session(made, "running")
    record_rows(made, 2, 20, [{"step": 30, "epoch": 3, "train/loss": 9.0}])
    before = {path: path.read_bytes() for path in made.path.rglob("*") if path.is_file()}
    moved = shutil.move(made.path, tmp_path / "moved")
    done = export_records(moved, kind=kind, output=tmp_path / "out")
    assert done.rows == 3
    after = {
        made.path / path.relative_to(moved): path.read_bytes() for path in moved.rglob("*") if path.is_file()
    }
    assert after == before, "it only reads"
    if kind == "csv":
        assert by_step(table(tmp_path / "out"))[30] == {"train/loss": 9.0}


@pytest.mark.parametrize("kind", ["csv", "parquet", "tensorboard"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "mine").write_text("mine")
    for name in ("mine", "ours"):
        with pytest.raises(Refused) as refused:
            export_records(made.path, kind=kind, output=tmp_path / name)
        assert refused.value.setting == "-o"
        assert repr(str(tmp_path / name)) in str(refused.value)
        messages.check(refused.value)
    with pytest.raises(Refused) as refused:
        export_records(made.path, kind=kind, output=tmp_path / "ours", overwrite=True)
    assert refused.value.setting == "-o"
    assert "--overwrite" in str(refused.value)
    assert (tmp_path / "mine").read_text() == "mine" == (tmp_path / "ours" / "mine").read_text()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_is_replaced_on_demand(tmp_path: Path, kind: str) -> None:
    made = package(tmp_path / "runs")
    (tmp_path / "old").write_text("old " * 1000)
    with pytest.raises(Refused) as refused:
        export_records(made.path, kind=kind, output=tmp_path / "old")
    assert refused.value.setting == "-o"
    assert "--overwrite" in str(refused.value)
    for name in ("old", "new"):
        export_records(made.path, kind=kind, output=tmp_path / name, overwrite=True)
    assert (tmp_path / "old").read_bytes() == (tmp_path / "new").read_bytes()
    assert not list(tmp_path.glob(".*"))


def test_an_export_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = package(tmp_path / "runs")
    (tmp_path / "old").write_text("old")

    def full(operation: str, path: str) -> None:
        if operation == "write" and path.count(".tmp-"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "fault", full)
    with pytest.raises(OSError, match="No space"):
        export_records(made.path, kind="csv", output=tmp_path / "old", overwrite=True)
    assert (tmp_path / "old").read_text() == "old" and not list(tmp_path.glob(".*"))


def test_lines_that_cannot_be_read_are_counted(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    assert export_records(made.path, kind="csv", output=tmp_path / "a").torn == 0
    file = made.path / "records" / "1.jsonl"
    header, *rows = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([header, b"garbage\n", *rows, b'{"step": 4']))
    done = export_records(made.path, kind="csv", output=tmp_path / "b")
    assert (done.rows, done.torn) == (3, 2)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    file.write_bytes(header + b"garbage\n")
    with pytest.raises(NotFound) as refused:
        export_records(made.path, kind="csv", output=tmp_path / "c")
    assert " 1 " in str(refused.value)
    assert refused.value.where == made.path
    messages.check(refused.value)


def test_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    made, empty = package(tmp_path / "runs"), package(tmp_path / "runs", "empty", state="new")
    with pytest.raises(UsageError) as refused:
        export_records(made.path, kind="xls", output=tmp_path / "out")
    assert all(fact in str(refused.value) for fact in ("'xls'", "csv, parquet, tensorboard"))
    messages.check(refused.value)
    with pytest.raises(NotFound) as refused:
        export_records(made.path, kind="csv", output=tmp_path / "no" / "out.csv")
    assert refused.value.setting == "-o"
    assert str(tmp_path / "no") in str(refused.value)
    messages.check(refused.value)
    with pytest.raises(NotFound) as refused:
        export_records(empty.path, kind="csv", output=tmp_path / "out.csv")
    assert refused.value.where == empty.path
    messages.check(refused.value)
    with pytest.raises(NotFound) as refused:
        export_records(tmp_path, kind="csv", output=tmp_path / "out.csv")
    assert str(tmp_path) in str(refused.value)
    messages.check(refused.value)
    monkeypatch.setattr(mirror_kinds, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pyarrow") as found:
        export_records(made.path, kind="parquet", output=tmp_path / "out")
    assert found.value.setting == "--records"
    assert found.value.fix == "pip install 'roost[data]'"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["csv", "parquet", "tensorboard"])
def test_no_torch(tmp_path: Path, kind: str) -> None:
    made = package(tmp_path / "runs")
    program = (
        "import sys; from pathlib import Path; from roost.operations.curves.export_records import export_records; "  # noqa: E501
        "export_records(sys.argv[1], kind=sys.argv[2], output=Path(sys.argv[3])); "
        "assert 'torch' not in sys.modules, 'torch'"
    )
    subprocess.run([sys.executable, "-c", program, made.path, kind, tmp_path / "out"], check=True)
