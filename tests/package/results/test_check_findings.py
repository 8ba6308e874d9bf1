from __future__ import annotations

from pathlib import Path

from roost.package.results import check_findings
from roost.package.results.check_findings import CheckStage, FindingLine, FindingsWriter


def test_what_was_written_is_read(tmp_path: Path) -> None:
    writer = FindingsWriter(tmp_path)
    writer.write(FindingLine(stage=CheckStage(name="data", state="begun")))
    writer.write(FindingLine(stage=CheckStage(name="data", state="done", seconds=0.5, seen="train 3")))
    writer.write(FindingLine(warning="slow"))
    writer.write(FindingLine(measured={"a": 1, "b": float("nan")}))
    writer.write(FindingLine(measured={"a": 2}))
    writer.write(FindingLine(stage=CheckStage(name="save", state="begun")))
    found = check_findings.read(tmp_path)
    assert found.stages == [CheckStage(name="data", state="done", seconds=0.5, seen="train 3")]
    assert found.last == "save", "in which it may have died"
    assert found.warnings == ["slow"] and found.measured == {"a": 2, "b": None}


def test_what_is_torn_or_not_there(tmp_path: Path) -> None:
    assert check_findings.read(tmp_path).stages == []
    FindingsWriter(tmp_path).write(FindingLine(warning="one"))
    with (tmp_path / check_findings.NAME).open("ab") as file:
        file.write(b'{"warning": "t')
    assert check_findings.read(tmp_path).warnings == ["one"]
    (tmp_path / check_findings.NAME).unlink()
    (tmp_path / check_findings.NAME).mkdir()
    assert check_findings.read(tmp_path).warnings == []
