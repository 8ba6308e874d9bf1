"""The conditions under which a forked worker starts again by exec."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from roost.base.system import cold_restart
from tests.messages import Messages


class Started(Exception):
    """In the place of a process that is replaced."""


def start() -> NoReturn:
    raise Started


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_restart, "_warm_process", None)
    cold_restart.enable(cold_restart.WarmProcess(frozenset({"colorsys"}), dict(os.environ), start))


@pytest.mark.parametrize("name", ["SYMPY_DEBUG", "OMP_NUM_THREADS", "TORCH_LOGS", "MKL_X"])
def test_a_variable_that_was_read_has_changed(
    ahead: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    capsys: pytest.CaptureFixture[str],
    messages: Messages,
) -> None:
    cold_restart.restart_if_needed(tmp_path)
    monkeypatch.setenv(name, "another")
    with pytest.raises(Started):
        cold_restart.restart_if_needed(tmp_path)
    output = capsys.readouterr().out
    messages.check(output)
    assert name in output


def test_another_variable_is_the_projects_own(
    ahead: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("CITY", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"):  # scikit-learn sets these two
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    cold_restart.restart_if_needed(tmp_path)


@pytest.mark.parametrize("name", ["colorsys.py", "colorsys"])
def test_a_file_has_the_name_of_a_loaded_module(ahead: None, tmp_path: Path, name: str) -> None:
    (tmp_path / "color.py").touch()
    cold_restart.restart_if_needed(tmp_path)
    (tmp_path / name).mkdir()
    with pytest.raises(Started):
        cold_restart.restart_if_needed(tmp_path)


def test_a_worker_that_began_cold_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    cold_restart.restart_if_needed(tmp_path / "nowhere")


def test_what_scikit_learn_sets_is_the_projects_own(ahead: None, tmp_path: Path) -> None:
    code = "import json, os; b = set(os.environ); import sklearn; print(json.dumps([*{*os.environ} - b]))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    with pytest.MonkeyPatch.context() as patch:
        for name in json.loads(found):
            patch.setenv(name, "1")
        cold_restart.restart_if_needed(tmp_path)
