from __future__ import annotations

from pathlib import Path

import pytest

from roost.package.results import check_findings
from roost.worker.check.stages import StageReporter, output_suppressed


def test_each_stage_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reporter = StageReporter(tmp_path)
    reporter.report("copy", "3 files", seconds=0.25)
    reporter.begin("save")
    reporter.done("1 kB")
    reporter.begin("save")
    reporter.done("2 kB")
    reporter.begin("hooks")  # dropped, and goes on later
    reporter.begin("row")
    reporter.drop()
    reporter.report("hooks", "Rules")
    reporter.warn("too slow")
    reporter.warn("inexact: x", is_printed=True)
    reporter.record_measurements(steps=3)
    reporter.begin("test")
    reporter.fail()
    reporter.fail()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "copy           0.25 s  3 files"
    assert [line.split()[0] for line in lines] == ["copy", "save", "hooks", "warning:", "test"]
    assert lines[-1].endswith("failed")
    found = check_findings.read(tmp_path)
    ended = [f"{stage.name} {stage.state}" for stage in found.stages]
    assert ended == ["copy done", "save done", "hooks done", "test failed"]
    assert found.last == "test" and found.warnings == ["too slow", "inexact: x"]
    assert found.measured == {"steps": 3}
    assert reporter.seconds["save"] > found.stages[1].seconds, "all its times"


def test_warnings_that_others_print_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reporter = StageReporter(tmp_path)
    with reporter.recording_warnings():
        print("a note", flush=True)
        print("warning: too long")
    assert capsys.readouterr().out == "a note\nwarning: too long\n", "printed once"
    assert check_findings.read(tmp_path).warnings == ["too long"]


def test_what_is_printed_can_be_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StageReporter(tmp_path).recording_output() as recorded:
        print("num_workers: 0")
    assert recorded.text == capsys.readouterr().out == "num_workers: 0\n"


def test_unrecorded_but_for_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with output_suppressed():
        print("a")
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="x"), output_suppressed():
        print("b")
        raise ValueError("x")
    assert capsys.readouterr().out == "b\n"
