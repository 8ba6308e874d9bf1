"""The process that does one check."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from roost.base import durable
from roost.base.errors import NotFound
from roost.package.package import PackageFolder
from roost.package.results import check_findings
from roost.worker.__main__ import main
from roost.worker.check.check_task import check
from tests.messages import Messages
from tests.project.projects import RUNNER, project

COPIED = {"files": 3, "seconds": 0.5}


def done(package: PackageFolder, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code."""
    monkeypatch.chdir(package.path)
    package.new_session(
        {"overrides": [], "device": "cpu", "project": "/nowhere", "copied": COPIED, "kind": "check"}
    )
    for name in ("stdout", "stderr"):  # main puts its own in their place
        monkeypatch.setattr(sys, name, getattr(sys, name))
    return main([str(package.path), "check"])


def test_a_check_that_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    package = project(tmp_path)
    assert done(package, monkeypatch) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "copy           0.50 s  3 files" and lines[-1].startswith("load ")
    assert check_findings.read(package.path).measured["device"] == "cpu"


def test_an_error_is_printed_once_and_with_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    package = project(tmp_path, runner=RUNNER.replace("x, y = batch", "x, z = batch"))
    assert done(package, monkeypatch) == 1
    out, err = capfd.readouterr()
    assert out.splitlines()[-1].startswith("start ") and out.splitlines()[-1].endswith("failed")
    assert err.count("NameError") == 1 and "  Model/Runner.py:12 in loss" in err
    assert "--debug" in err.splitlines()[-1]
    assert not list((package.path / "sessions").glob("*.traceback.txt"))


def test_a_mistake_is_one_line_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert done(project(tmp_path, early_stopping={"monitor": "valid/x"}), monkeypatch) == 4
    assert len(capfd.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("where", ["model.safetensors", "MANIFEST.json"])
def test_a_disk_that_is_full_is_that_of_the_check(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(where):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(durable, "fault", full)
    assert done(project(tmp_path), monkeypatch) == 5
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: ") and f" {tmp_path} " in line
    assert "TMPDIR=/path roost check" in line


def test_without_a_session(tmp_path: Path, messages: Messages) -> None:
    package: Any = project(tmp_path)
    with pytest.raises(NotFound) as refused:
        check(package)
    messages.check(refused.value)
