"""`breakpoint()` with and without a terminal; pdb on a real terminal is in tests/system/test_pdb.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from roost.base.errors import RoostError
from roost.worker.debug.breakpoints import Debugger
Debugger(has_terminal={terminal})
def stop():
    breakpoint()
    return "went on"
if {child} and os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
try:
    print(stop(), flush=True)
except RoostError as error:
    print(error, flush=True)
"""


def said(*, terminal: bool, child: bool = False, **env: str) -> str:
    program = PROGRAM.format(terminal=terminal, child=child)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **env},
        input="c\n",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_terminal_it_names_the_flag_and_the_line() -> None:
    text = said(terminal=False)
    assert "<string>:7" in text and "roost run --pdb" in text


def test_with_a_terminal_pdb_answers() -> None:
    assert "(Pdb)" in said(terminal=True) and "went on" in said(terminal=True)


def test_a_loader_worker_has_no_terminal() -> None:
    assert "data.num_workers" in said(terminal=True, child=True)


@pytest.mark.parametrize("terminal", [False, True])
def test_breakpoints_can_be_switched_off(terminal: bool) -> None:
    assert said(terminal=terminal, PYTHONBREAKPOINT="0") == "went on\n"
