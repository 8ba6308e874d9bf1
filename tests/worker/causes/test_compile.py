from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from roost.base.raised import Raised
from roost.train.stepper import Stepper
from tests.project.projects import project
from tests.worker.causes.scenes import known, of, unknown

STEP = """
import pickle, sys, torch
from roost.base.raised import raised
from roost.train.stepper import Stepper

module = torch.nn.Linear(3, 3)
stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1), mode="compile")
try:
    stepper.run(lambda batch: module(batch).relu().mean(), [torch.ones(2, 3)])
except Exception as error:
    sys.stdout.buffer.write(pickle.dumps(raised(error)))
"""

FAILS = """#!/bin/sh
for one in "$@"; do [ "$one" = --version ] && exec g++ --version; done
echo "kernel.cpp: In function:" >&2
echo "kernel.cpp:1:10: fatal error: {}" >&2
exit 1
"""


def a_step(folder: Path, **environment: str) -> Raised:
    """What a compiled step raises in a process that has nothing compiled yet."""
    done = subprocess.run(
        [sys.executable, "-c", STEP],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "kernels"), **environment},
        stdout=subprocess.PIPE,
        timeout=100,
        check=True,
    )
    found = pickle.loads(done.stdout)  # noqa: S301  - our own process wrote it
    assert isinstance(found, Raised)
    return found


def test_a_machine_without_a_compiler(tmp_path: Path) -> None:
    found = a_step(tmp_path, PATH=str(tmp_path))
    cause = known(found, project(tmp_path / "package", step_mode="compile").path)
    assert cause.words == (
        "step_mode: compile builds its kernels with a C++ compiler, and g++ does not work on this machine"
    )
    assert cause.fix.startswith("install one (g++ or clang++") and cause.fix.endswith("set step_mode: eager")
    cause = known(found, project(tmp_path / "eager").path)
    assert cause.words.startswith("torch.compile builds") and cause.fix.endswith("or do not compile")


@pytest.mark.needs_program("g++")
@pytest.mark.parametrize(
    ("says", "fix"),
    [
        ("Python.h: No such file or directory", "the package python3-dev"),
        ("no space left", "see what it says"),
    ],
)
def test_a_compiler_that_lacks_something(says: str, fix: str, tmp_path: Path) -> None:
    compiler = tmp_path / "cxx"
    compiler.write_text(FAILS.format(says))
    compiler.chmod(0o755)
    found = a_step(tmp_path, CXX=str(compiler))
    cause = known(found, project(tmp_path / "package", step_mode="compile").path)
    assert cause.words == f"step_mode: compile: {compiler} cannot build a kernel: fatal error: {says}"
    assert fix in cause.fix and cause.fix.endswith("or set step_mode: eager")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("InvalidCxxCompiler: No working C++ compiler found in a: (None, 'g++')"),
        RuntimeError("C++ compile error"),
    ],
)
def test_what_only_sounds_like_it(error: Exception) -> None:
    assert unknown(error)


def test_an_error_in_a_compiled_loss_is_its_own() -> None:
    import torch

    module = torch.nn.Linear(3, 3)
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1), mode="compile")
    wrong = torch.ones(2, 5)
    found = of(lambda: stepper.run(lambda batch: module(batch).mean(), [wrong]))
    assert "C++" not in found.text
