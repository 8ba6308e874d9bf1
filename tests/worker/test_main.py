from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from roost.base import durable
from roost.base.system.worker_protocol import REPORT_VARIABLE
from roost.operations.sessions.session_request import start_session
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.session_schema import SessionRequest
from roost.project import native_project
from roost.worker.__main__ import main
from tests.messages import Messages
from tests.project.projects import DATASET, RUNNER, project

FAILS = (
    RUNNER
    + """
    def update(self, stepper, batches):
        if self.progress.step == 3:
            raise ValueError(self.args["message"])
        return super().update(stepper, batches)
"""
)

LOOKS = "import os\n" + DATASET.replace(
    "        x = ",
    "        print('report', os.environ.get('ROOST_REPORT_FD'), 'cwd', os.getcwd())\n        x = ",
)


def run(
    package: PackageFolder, monkeypatch: pytest.MonkeyPatch, number: int | None = None
) -> tuple[int, dict[str, Any]]:
    """Runs a session in this process; gives the exit code and the final line."""
    if number is None:
        number = package.new_session({"overrides": [], "device": "cpu", "project": ""})
    for name in ("stdout", "stderr"):  # main puts its own in their place
        monkeypatch.setattr(sys, name, getattr(sys, name))
    reading, writing = os.pipe()
    monkeypatch.setenv(REPORT_VARIABLE, str(writing))
    with os.fdopen(reading, "rb") as file:
        try:
            code = main([str(package.path), str(number)])
        except BaseException:
            os.close(writing)
            assert file.read() == b""
            raise
        return code, json.loads(file.read())


pytestmark = pytest.mark.usefixtures("own_signals")


def test_a_run_that_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, line = run(project(tmp_path), monkeypatch)
    assert code == 0
    assert line == {"state": "succeeded", "exit_code": 0, "reason": "finished", "error": None}


def test_a_run_that_ends_by_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patience = {"monitor": "valid/loss", "patience": 1, "min_delta": 1e9}
    code, line = run(project(tmp_path, validate_every="1", early_stopping=patience), monkeypatch)
    assert (code, line["state"], line["reason"]) == (0, "succeeded", "early stop")


def test_a_run_that_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, line = run(project(tmp_path, runner=SIGNALS), monkeypatch)
    assert code == 75
    assert line == {"state": "stopped", "exit_code": 75, "reason": "stopped on request", "error": None}


SIGNALS = (
    RUNNER
    + """
    def update(self, stepper, batches):
        import os, signal
        if self.progress.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().update(stepper, batches)
"""
)


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        ({"max_steps": 0}, 4, "max_steps"),
        ({"runner": "Nowhere.py:Runner"}, 4, "Nowhere.py"),
        ({"dataset_code": "import roost\nclass Dataset(roost.Dataset): pass"}, 1, "build()"),
    ],
)
def test_a_mistake_is_one_line_with_its_exit_code(
    options: dict[str, Any],
    code: int,
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    given = dict(options)
    code_of = {"dataset": given.pop("dataset_code")} if "dataset_code" in given else {}
    package = project(tmp_path, **code_of)
    args = package.path / "args.json"
    args.write_text(json.dumps({**json.loads(args.read_text()), **given}))
    exit_code, line = run(package, monkeypatch)
    assert (exit_code, line["exit_code"], line["state"], line["reason"]) == (code, code, "failed", "error")
    assert error in line["error"]
    said = capfd.readouterr().err
    assert said == f"error: {line['error']}\n"


def test_a_session_that_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    code, line = run(project(tmp_path), monkeypatch, number=7)
    assert code == 3
    assert "session 7" in line["error"]
    messages.check(line["error"])


def test_an_error_of_the_project_is_printed_in_full_and_reported_with_its_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sets = (
        DATASET
        + "\nclass Bad:\n    def __len__(self): return 9\n    def __getitem__(self, i): return 1 / 0\n"
    )
    code, line = run(project(tmp_path, dataset=sets.replace("train=data", "train=Bad()")), monkeypatch)
    assert code == 1
    assert line["reason"] == "exception"
    error, _, note = line["error"].partition("; ")
    assert error == "ZeroDivisionError: division by zero"
    assert "sample 0 " in note and note.endswith("(Bad)")
    assert "Traceback" in capfd.readouterr().err


def test_an_error_as_long_as_a_book_still_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor reads no more than a megabyte; a pipe holds 64 KiB."""
    code, line = run(project(tmp_path, runner=FAILS, message="x" * 2_000_000), monkeypatch)
    assert code == 1
    assert line["error"].startswith("ValueError: xxx") and len(line["error"]) < 5000


@pytest.mark.parametrize(
    ("ends", "said", "code"),
    [
        ("raise SystemExit(0)", "sys.exit(0)", 1),
        ("raise SystemExit", "sys.exit()", 1),
        ("raise SystemExit(75)", "sys.exit(75)", 1),
        ("raise SystemExit(256)", "sys.exit(256)", 1),
        ("raise SystemExit(3)", "sys.exit(3)", 3),
        ("raise SystemExit('why')", "sys.exit('why')", 1),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", 1),
    ],
)
def test_an_exit_in_the_project_is_no_success(
    ends: str,
    said: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    messages: Messages,
) -> None:
    runner = RUNNER.replace("    def build(self):", f"    def build(self):\n        {ends}")
    exit_code, line = run(project(tmp_path, runner=runner), monkeypatch)
    text = line.pop("error")
    assert f" {said} " in text
    messages.check(text)
    assert exit_code == code
    assert line == {"state": "failed", "exit_code": code, "reason": "exit"}
    printed = capfd.readouterr().err
    assert printed.startswith(f"error: {text}\n") and "  Model/Runner.py:7 in build\n" in printed, (
        "where it did so"
    )


@pytest.mark.parametrize("kind", ["BaseException", "GeneratorExit"])
def test_an_error_that_is_no_exception_is_reported_as_one(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """DLNest raises such errors, and projects after it."""
    runner = RUNNER.replace("    def build(self):", f"    def build(self):\n        raise {kind}('why')")
    code, line = run(project(tmp_path, runner=runner), monkeypatch)
    assert code == 1 and line["state"] == "failed" and line["reason"] == "exception"
    assert line["error"].startswith(f"{kind}: why")
    assert "  Model/Runner.py:7 in build\n" in capfd.readouterr().err


@pytest.mark.parametrize("operation", ["open", "write", "fsync"])
def test_a_full_disk_is_one_line(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(what: str, path: str) -> None:
        if what == operation and "environment.json" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(durable, "fault", full)
    code, line = run(project(tmp_path), monkeypatch)
    assert (code, line["state"], line["reason"]) == (1, "failed", "error")
    assert "No space left on device" in line["error"] and "environment.json" in line["error"]
    assert "`roost continue`" in line["error"]
    assert capfd.readouterr().err == f"error: {line['error']}\n"


def test_a_progress_that_cannot_be_made_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    package = project(tmp_path)
    package.progress.mkdir()
    _, line = run(package, monkeypatch)
    assert line["reason"] == "error" and str(package.progress) in line["error"]
    assert "Traceback" not in capfd.readouterr().err


def test_an_os_error_of_the_project_is_printed_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sets = (
        DATASET
        + "\nclass Bad:\n    def __len__(self): return 9\n"
        + "    __getitem__ = lambda self, i: open('/nowhere/at/all')\n"
    )
    _, line = run(project(tmp_path, dataset=sets.replace("train=data", "train=Bad()")), monkeypatch)
    assert line["reason"] == "exception" and line["error"].startswith("FileNotFoundError: ")
    assert "Traceback" in capfd.readouterr().err


def test_tracebacks_of_mistakes_too_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROOST_DEBUG", "1")
    _, line = run(project(tmp_path), monkeypatch, number=7)
    printed = capfd.readouterr().err
    assert "Traceback" in printed and printed.endswith(f"error: {line['error']}\n")


# --- as it is started --------------------------------------------------------------------------------------


def start(package: PackageFolder) -> dict[str, Any]:
    """Starts a session through its supervisor and waits for its end; gives the record."""
    lock = package.lock()
    try:
        _, settings = native_project.resolve_settings(package, "")
        started = start_session(
            package, lock, SessionRequest(overrides=[], device="cpu", project=""), settings
        )
    finally:
        os.close(lock)
    assert started.process is not None
    code = started.process.wait(100)
    record = package.sessions()[-1].record
    assert record is not None and record["exit_code"] == code
    return record


@pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper")
def test_started_for_real(tmp_path: Path) -> None:
    package = project(tmp_path, dataset=LOOKS, data={"batch_size": 10, "num_workers": 2})
    record = start(package)
    assert (record["state"], record["exit_code"], record["reason"]) == ("succeeded", 0, "finished")
    output = package.output.read_text()
    assert f"report None cwd {package.path}" in output
    assert re.search(r"\bfinished\b.*\b6\b", output)
    assert checkpoint.read_manifests(package.checkpoints)[-1].step == 6
    assert package.records().last()["valid/loss"] > 0
    assert not list(package.path.rglob("__pycache__"))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper")
def test_failing_for_real(tmp_path: Path) -> None:
    package = project(tmp_path, runner=FAILS, message="out of luck", checkpoint={"every": "2"})
    record = start(package)
    assert (record["state"], record["exit_code"]) == ("failed", 1)
    assert record["error"] == "ValueError: out of luck"
    assert "Traceback" in package.output.read_text()
    assert checkpoint.read_manifests(package.checkpoints)[-1].step == 2
    assert package.state == "failed"
    fd = package.lock()
    os.close(fd)
