from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from roost.train.step.stepper import Stepper
from roost.worker.causes import compile_causes
from roost.worker.causes.cause import Cause, FailureContext
from tests.messages import Messages
from tests.project.projects import project
from tests.worker.causes.scenes import of, texts, unknown

REPOSITORY = Path(__file__).parents[3]
STEP = """
import json, pathlib, sys, torch
from roost.train.step.stepper import Stepper
from tests.worker.causes.scenes import known

module = torch.nn.Linear(3, 3)
stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1), mode="compile")
try:
    stepper.run(lambda batch: module(batch).relu().mean(), [torch.ones(2, 3)])
except Exception as error:
    print(json.dumps([known(error, pathlib.Path(package)) for package in sys.argv[1:]]))
"""

FAILS = """#!/bin/sh
for one in "$@"; do [ "$one" = --version ] && exec g++ --version; done
echo "kernel.cpp: In function:" >&2
echo "kernel.cpp:1:10: fatal error: Python.h: No such file or directory" >&2
exit 1
"""


def causes(folder: Path, **environment: str) -> list[Cause]:
    """Why a compiled step fails, in a process that has nothing compiled yet: in a package that asks for it,
    and in one whose own code does."""
    packages = [project(folder / "ours", step_mode="compile"), project(folder / "own")]
    done = subprocess.run(
        [sys.executable, "-c", STEP, *(str(package.path) for package in packages)],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "kernels"), **environment},
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        timeout=100,
        check=True,
    )
    return [Cause(*cause) for cause in json.loads(done.stdout)]


def test_a_machine_without_a_compiler(tmp_path: Path, messages: Messages) -> None:
    ours, own = causes(tmp_path, PATH=str(tmp_path))
    assert (
        "step_mode: compile" in ours.description
        and "g++" in ours.description
        and "step_mode: eager" in ours.fix
    )
    assert (
        "torch.compile" in own.description
        and "step_mode" not in own.description + own.fix
        and "g++" in own.fix
    )
    messages.check(texts(ours))
    messages.check(texts(own))


@pytest.mark.needs_program("g++")
@pytest.mark.needs_program("g++")
def test_a_compiler_that_lacks_something(tmp_path: Path, messages: Messages) -> None:
    compiler = tmp_path / "cxx"
    compiler.write_text(FAILS)
    compiler.chmod(0o755)
    ours, _ = causes(tmp_path, CXX=str(compiler))
    assert "step_mode: compile" in ours.description and str(compiler) in ours.description
    assert ours.description.endswith("fatal error: Python.h: No such file or directory")
    assert "python3-dev" in ours.fix and "step_mode: eager" in ours.fix
    messages.check(texts(ours))


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
    module = torch.nn.Linear(3, 3)
    stepper = Stepper(torch.optim.SGD(module.parameters(), lr=0.1), mode="compile")
    found = of(lambda: stepper.run(lambda batch: module(batch).mean(), [torch.ones(2, 5)]))
    assert found.is_a("RuntimeError") and not any(
        row(found, FailureContext()) for row in compile_causes.CAUSES
    )
