"""The last steps before a session runs."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.operations import starting
from roost.operations.starting import begin, environment, write_description
from tests.operations.packages import package

WORKER = """
import json, os, sys
print("package", sys.argv[1], "session", sys.argv[2], "in", os.getcwd(), flush=True)
line = {"state": "succeeded", "exit_code": 0, "reason": "finished", "error": None}
os.write(int(os.environ["ROOST_REPORT_FD"]), json.dumps(line).encode() + b"\\n")
"""


def test_starts_the_worker_and_hands_over_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = package(tmp_path / "runs", state="new")
    made.output.write_bytes(b"before\n")
    # The worker's place in the command line, with a program that does not need torch.
    (tmp_path / "python").write_text(f"#!{sys.executable}\n{textwrap.dedent(WORKER)}".replace("argv[", "argv[3 + "))
    (tmp_path / "python").chmod(0o755)
    lock_fd = made.lock()
    monkeypatch.setattr(starting.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(starting.start, "sys", type("", (), {"executable": sys.__dict__["_base_executable"]}))
    started = begin(made, lock_fd, {"kind": "train", "device": "cpu"}, seed=0)
    with pytest.raises(Refused, match="in use"):
        made.lock()
    assert started.process is not None and started.process.wait(20) == 0
    assert started.session == 1 and started.output_offset == len(b"before\n")
    said = made.output.read_text()
    assert f"package {made.path} session 1 in {made.path}" in said
    assert json.loads((made.path / "sessions" / "1.request.json").read_text())["device"] == "cpu"


def test_the_environment_is_the_callers_and_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    made = environment(seed=2**40 + 7, cpu=False)
    assert made["MINE"] == "1" and made["PYTHONHASHSEED"] == "7" and made["CUDA_VISIBLE_DEVICES"] == "3"
    assert made["PYTHONUNBUFFERED"] == "1" and made["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environment(seed=0, cpu=True)["CUDA_VISIBLE_DEVICES"] == ""


def test_the_description_is_a_file_that_a_listing_shows(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="new")
    write_description(made, "a/b: more")
    assert (made.path / "_desc: a_b: more").read_text() == "a/b: more\n"
    before = sorted(made.path.iterdir())
    write_description(made, None)
    assert sorted(made.path.iterdir()) == before
