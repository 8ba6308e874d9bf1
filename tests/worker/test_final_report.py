from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from roost.base.system.worker_protocol import REPORT_VARIABLE
from roost.worker.final_report import FinalReport, report_exit_statuses


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The supervisor's end of the report's pipe."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    monkeypatch.setenv(REPORT_VARIABLE, str(writing))
    yield reading
    os.close(reading)


def test_one_line_and_then_the_end_of_the_pipe(pipe: int) -> None:
    report = FinalReport()
    assert report.write("failed", exit_code=4, reason="error", error="straße\n\ud800") == 4
    assert report.write("succeeded", exit_code=0, reason="finished") == 0, "the second is not written"
    with os.fdopen(os.dup(pipe), "rb") as file:
        (line,) = file.read().splitlines()
    assert json.loads(line) == {
        "state": "failed",
        "exit_code": 4,
        "reason": "error",
        "error": "straße\n\ud800",
    }


def test_children_do_not_get_the_pipe(pipe: int) -> None:
    fd = int(os.environ[REPORT_VARIABLE])
    report = FinalReport()
    assert REPORT_VARIABLE not in os.environ
    assert not os.get_inheritable(fd)
    report.write("succeeded", exit_code=0, reason="finished")


def test_without_a_supervisor_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REPORT_VARIABLE, raising=False)
    assert FinalReport().write("stopped", exit_code=75, reason="signal") == 75


def test_a_forked_process_does_not_speak_for_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv(REPORT_VARIABLE, str(writing))
    report = FinalReport()
    pid = os.fork()
    if pid == 0:
        os._exit(report.write("failed", exit_code=3, reason="exit"))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    report.write("succeeded", exit_code=0, reason="finished")
    with os.fdopen(reading, "rb") as file:
        (line,) = file.read().splitlines()
    assert json.loads(line)["state"] == "succeeded"


def test_what_a_launcher_has_started_finds_the_pipe_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says who it is, and ends with 0 where others may save still: torchrun would end them."""
    reading, writing = os.pipe()
    for state, expected in (("stopped", 0), ("failed", 75)):
        monkeypatch.setenv(REPORT_VARIABLE, f"/proc/{os.getpid()}/fd/{reading}")
        monkeypatch.setenv("RANK", "3")
        assert FinalReport().write(state, exit_code=75, reason="signal", error="x" * 10_000) == expected
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        hello, said, *_ = map(json.loads, file.read().splitlines())
    assert hello == {"launched": os.getpid()}
    assert (said["rank"], said["state"], len(said["error"])) == (3, "stopped", 2000)


def test_exit_statuses_from_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv(REPORT_VARIABLE, f"/proc/{os.getpid()}/fd/{writing}")
    report_exit_statuses({1: -9, 3: 1})
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        assert [json.loads(line) for line in file] == [{"rank": 1, "status": -9}, {"rank": 3, "status": 1}]


def test_card_memory_is_reported_where_it_is_known(pipe: int) -> None:
    FinalReport().write("succeeded", exit_code=0, reason="finished", memory={"peak_mb": 7.5})
    with os.fdopen(os.dup(pipe), "rb") as file:
        assert json.loads(file.read())["memory"] == {"peak_mb": 7.5}
