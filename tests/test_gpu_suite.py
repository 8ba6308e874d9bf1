"""The suite that needs a GPU, as far as a machine without one can try it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools import gpu_suite


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results file of a suite with one piece that counts its runs, on a machine said to be fit."""
    program = f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); print('a table')"
    monkeypatch.setattr(
        gpu_suite, "PIECES", {"count": ["-c", program], "fail": ["-c", "raise SystemExit(3)"]}
    )
    monkeypatch.setattr(gpu_suite, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(gpu_suite, "what_is_missing", lambda: None)
    monkeypatch.setattr(gpu_suite, "card_name", lambda: "a card")
    monkeypatch.setattr(sys, "argv", ["gpu_suite.py"])
    return tmp_path / "results.json"


def test_a_piece_that_passed_is_not_run_again(suite: Path) -> None:
    assert gpu_suite.main() == 1
    assert gpu_suite.main() == 1
    results = json.loads(suite.read_text())
    assert results["count"]["passed"] and results["count"]["output"] == "a table\n"
    assert results["fail"]["end"] == "exit code 3"
    assert (suite.parent / "runs").read_text() == "x"


def test_other_sources_run_it_again(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_suite.main()
    monkeypatch.setattr(gpu_suite, "sources_digest", lambda: "other")
    gpu_suite.main()
    assert (suite.parent / "runs").read_text() == "xx"


def test_a_piece_is_ended_at_the_limit() -> None:
    result = gpu_suite.run_piece(["-c", "import time; print('begun', flush=True); time.sleep(60)"], 2)
    assert result["end"] == "ended after 2 s" and not result["passed"] and result["output"] == "begun\n"


def test_the_marked_tests_are_found() -> None:
    assert "tests/train/step/test_device_clock.py" in gpu_suite.marked_tests()


def test_an_interpreter_without_the_libraries_is_refused() -> None:
    """A real one: this interpreter, isolated from its site-packages."""
    suite = Path(gpu_suite.__file__)
    done = subprocess.run([sys.executable, "-I", "-S", str(suite)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "torch" in done.stderr and "make gpu PYTHON=" in done.stderr
