from __future__ import annotations

import json
import signal

import pytest

from roost.supervisor.exit_status import (
    SessionOutcome,
    final_report,
    judge_outcome,
    killed_supervisor_outcome,
    status_name,
)
from tests.messages import Messages


@pytest.mark.parametrize(
    "report",
    [b"", b"\n", b"{", b"[]", b"null", b"\xff\xfe", b'{"state": "succeeded"}', b"[" * 100_000,
     b'{"state": "done", "exit_code": 0, "reason": "", "error": null}',
     b'{"state": "failed", "exit_code": "0", "reason": "", "error": null}'],
)  # fmt: skip
def test_a_line_that_means_nothing_is_no_line(report: bytes) -> None:
    assert judge_outcome(report, 0, stop_requested=False, killed=False).state == "crashed"


@pytest.mark.parametrize("code", [2**80, -1, 256, True, 1.0, {}, None])
def test_what_no_process_can_end_with_is_no_exit_code(code: object) -> None:
    said = {"state": "failed", "exit_code": code, "reason": "exception", "error": "x"}
    assert final_report(json.dumps(said).encode()) is None


def test_the_last_line_that_means_something_counts() -> None:
    lines = [
        {"state": state, "exit_code": 0, "reason": "r", "error": None} for state in ("failed", "succeeded")
    ]
    report = b"\n".join(json.dumps(line).encode() for line in lines) + b'\n{"half": '
    assert judge_outcome(report, 0, stop_requested=True, killed=True) == SessionOutcome(
        "succeeded", 0, "r", None
    )


def line(state: str, exit_code: int = 0, error: str | None = None) -> bytes:
    said = {"state": state, "exit_code": exit_code, "reason": "r", "error": error}
    return json.dumps(said).encode() + b"\n"


def is_like(found: SessionOutcome, expected: SessionOutcome) -> bool:
    """Whether they are alike, the error of the one naming that of the other."""
    if found.error is None or expected.error is None:
        return found == expected
    return found._replace(error=expected.error) == expected and expected.error in found.error


TIME = SessionOutcome("stopped", 75, "time limit", None)
STALLED = SessionOutcome("failed", 1, "stalled", "no step")


@pytest.mark.parametrize(
    ("report", "status", "limit", "overdue", "expected"),
    [
        (line("stopped", 75), 75, TIME, None, TIME),
        (line("stopped", 75), 75, STALLED, None, STALLED),
        (line("succeeded"), 0, TIME, None, SessionOutcome("succeeded", 0, "r", None)),
        (line("failed", 1, "full"), 1, TIME, None, SessionOutcome("failed", 1, "r", "full")),
        (b"", -signal.SIGTERM, TIME, None, TIME),
        (b"", -signal.SIGKILL, TIME, "late", TIME._replace(error="late")),
        (b"", -signal.SIGKILL, STALLED, "late", STALLED._replace(error="no step; late")),
        (b"", -signal.SIGSEGV, TIME, None, SessionOutcome("crashed", 1, "signal", "SIGSEGV")),
        (b"", 3, TIME, None, SessionOutcome("crashed", 3, "exit", "3")),
    ],
)
def test_a_session_that_a_limit_asked_to_end(
    report: bytes,
    status: int,
    limit: SessionOutcome,
    overdue: str | None,
    expected: SessionOutcome,
    messages: Messages,
) -> None:
    found = judge_outcome(report, status, stop_requested=True, killed=False, limit=limit, overdue=overdue)
    assert is_like(found, expected)
    if found != expected:
        messages.check(found.error)


def test_a_kill_on_request_is_no_limit() -> None:
    assert judge_outcome(b"", -9, stop_requested=True, killed=True, limit=TIME).reason == "killed"


def test_the_supervisor_s_own_end(messages: Messages) -> None:
    for status in (-9, -6):
        messages.check(killed_supervisor_outcome(status).error)
    assert "SIGKILL" in (killed_supervisor_outcome(-9).error or "")
    assert status_name(-9) == "SIGKILL"
    assert status_name(-40) == "signal 40"
    assert status_name(7) == 7


@pytest.mark.parametrize(
    ("status", "asked", "killed", "expected"),
    [
        (0, False, False, SessionOutcome("succeeded", 0, "done", None)),
        (3, False, False, SessionOutcome("failed", 3, "exit", "3")),
        (75, False, False, SessionOutcome("failed", 75, "exit", "75")),
        (-signal.SIGSEGV, False, False, SessionOutcome("crashed", 1, "signal", "SIGSEGV")),
        (0, True, False, SessionOutcome("succeeded", 0, "done", None)),
        (0, True, True, SessionOutcome("succeeded", 0, "done", None)),
        (1, True, False, SessionOutcome("stopped", 75, "signal", None)),
        (-signal.SIGTERM, True, False, SessionOutcome("stopped", 75, "signal", None)),
        (-signal.SIGKILL, False, True, SessionOutcome("stopped", 130, "killed", None)),
        (-signal.SIGKILL, True, True, SessionOutcome("stopped", 130, "killed", None)),
    ],
)
def test_a_command_says_by_its_exit_code_how_it_ended(
    status: int, asked: bool, killed: bool, expected: SessionOutcome, messages: Messages
) -> None:
    report = line("succeeded", error="a program that writes into a pipe which is not its own")
    found = judge_outcome(report, status, stop_requested=asked, killed=killed, is_command=True)
    assert is_like(found, expected)
    if found != expected:
        messages.check(found.error)


def test_a_command_that_its_limit_ended_has_that_reason() -> None:
    found = judge_outcome(b"", 0, stop_requested=True, killed=False, limit=TIME, is_command=True)
    assert found == TIME


def test_a_command_that_could_not_be_started_says_why(messages: Messages) -> None:
    said = {"state": "failed", "exit_code": 127, "reason": "start", "error": "x: No such file or directory"}
    report = json.dumps(said).encode() + b"\n"
    assert judge_outcome(report, 127, stop_requested=False, killed=False, is_command=True) == SessionOutcome(
        **said
    )
    by_its_worker = report.replace(b'"start"', b'"exception"')  # of a roost that the command has called
    found = judge_outcome(by_its_worker, 1, stop_requested=False, killed=False, is_command=True)
    assert found.reason == "exit" and "x: No such" not in str(found.error)
    messages.check(found.error)
