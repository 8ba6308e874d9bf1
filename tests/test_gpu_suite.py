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
    marked = gpu_suite.marked_tests()
    assert "tests/train/step/test_device_clock.py" in marked
    assert not any(file.startswith("tests/gpu/") for file in marked), "these are pieces of their own"


def test_each_proof_is_a_piece() -> None:
    files = sorted(Path(gpu_suite.REPOSITORY, "tests/gpu").glob("test_*.py"))
    assert files and {f"tests/gpu/{file.name}" for file in files} == set(gpu_suite.proofs())
    assert set(gpu_suite.proofs()) <= gpu_suite.PIECES.keys()


def test_what_failed_is_run_again_with_blocking_launches(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "test_card.py"
    file.write_text(
        "import os\ndef test_good(): pass\n"
        "def test_bad(): assert os.environ.get('CUDA_LAUNCH_BLOCKING') == '1', 'asynchronous'\n"
    )
    cache = f"cache_dir={tmp_path / 'cache'}"
    piece = ["-m", "pytest", "-q", "--rootdir", str(tmp_path), "-p", "no:xdist", "-o", cache, str(file)]
    monkeypatch.setattr(gpu_suite, "PIECES", {"proof": piece})
    assert gpu_suite.main() == 1
    results = json.loads(suite.read_text())
    assert "1 failed, 1 passed" in results["proof"]["output"]
    again = results["proof: what failed, blocking"]
    assert again["passed"] and "1 passed" in again["output"]


def test_an_interpreter_without_the_libraries_is_refused() -> None:
    """A real one: this interpreter, isolated from its site-packages."""
    suite = Path(gpu_suite.__file__)
    done = subprocess.run([sys.executable, "-I", "-S", str(suite)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "torch" in done.stderr and "make gpu PYTHON=" in done.stderr
