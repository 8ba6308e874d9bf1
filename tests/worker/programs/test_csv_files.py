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


def test_a_file_without_steps_is_data(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("x,y\n1,2\n")
    assert list(CsvFile(path).new_rows()) == []
    path.write_bytes(b"\xff\x00\n1,2\n")
    assert list(CsvFile(path).new_rows()) == []
