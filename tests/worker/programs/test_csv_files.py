"""CSV files that grow."""

from __future__ import annotations

from pathlib import Path

from roost.worker.programs.csv_files import CsvFile, CsvRow


def test_rows_are_read_when_they_are_complete(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,step,train_loss,note\n0,1,0.5,a\n0,2,0.2")
    file = CsvFile(path)
    assert list(file.new_rows()) == [CsvRow(1, {"train_loss": 0.5})]
    with path.open("a") as opened:
        opened.write("5,b\n1,3,,c\n")
    assert list(file.new_rows()) == [CsvRow(2, {"train_loss": 0.25}), CsvRow(3, {})]
    path.write_text("step,loss\n9,1\n")
    assert list(file.new_rows()) == [CsvRow(9, {"loss": 1.0})]


def test_a_file_that_is_written_again_repeats_nothing(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,0.5\n2,nan\n")
    file = CsvFile(path)
    assert [row.step for row in file.new_rows()] == [1, 2]
    path.write_text("")  # while it is written again
    assert list(file.new_rows()) == []
    path.write_text("step,loss,valid_loss\n1,0.5,\n2,nan,\n2,,0.25\n")
    assert list(file.new_rows()) == [CsvRow(2, {"valid_loss": 0.25})]
    path.write_text("step,loss\n3,0.125\n2,nan\n1,0.5\n" + "# longer than before\n" * 3)
    assert next(file.new_rows()) == CsvRow(3, {"loss": 0.125})


def test_a_long_cell(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(f"step,loss,text\n1,0.5,{'x' * 200_000}\n2,0.25,\n")
    assert [row.metrics["loss"] for row in CsvFile(path).new_rows()] == [0.5, 0.25]


def test_a_file_without_steps_is_data(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("x,y\n1,2\n")
    assert list(CsvFile(path).new_rows()) == []
    path.write_bytes(b"\xff\x00\n1,2\n")
    assert list(CsvFile(path).new_rows()) == []
