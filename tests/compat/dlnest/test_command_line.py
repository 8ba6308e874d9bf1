"""DLNest's command lines as commands of roost."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from roost.base.errors import UsageError
from roost.cli.__main__ import COMMANDS
from roost.compat.dlnest.command_line import PROGRAMS, translate
from tests.messages import Messages


@pytest.mark.parametrize(
    ("name", "typed", "here"),
    [
        ("Server", "", "server"),
        ("Server", "--port=8888", "server --port 8888"),
        ("Server", "-port 8888", "server --port 8888"),
        ("Client", "-u 127.0.0.1 -p 8888", "client -p 8888"),
        ("Client", "-u gpu-box", "client -u gpu-box"),
        ("Simple", "", "simple"),
        ("Local", "", "local"),
        ("Run", "-c r.json", "run -c r.json"),
        ("Run", "-c r.json -d 'a b' -f f.json -sd -ns", "run -c r.json -d 'a b' -f f.json -sd -ns"),
        ("Run", "-c r.json -devices 0 1 -DDP", "run -c r.json --devices 0,1, -DDP"),
        ("Run", "-DDP -devices 0 1 -c r.json", "run -DDP --devices 0,1, -c r.json"),
        ("Run", "-c r.json -devices 1 0", "run -c r.json --devices 1,"),
        ("Run", "-c r.json -devices -1", "run -c r.json -CPU"),
        ("Run", "-c r.json -CPU -devices -1", "run -c r.json -CPU"),
        ("Run", "-c r.json -ss epochs=2", "run -c r.json epochs=2"),
        ("Analyze", "-r p -s getAcc", "analyze -r p -s getAcc"),
        ("Analyze", "-r p -s s.py -c 3 -CPU", "analyze -r p -s s.py -c 3 -CPU"),
        ("Analyze", "-r p -s s -c -1", "analyze -r p -s s"),
        ("Analyze", "-r p -s s -c -2", "analyze -r p -s s --untrained"),
        ("Analyze", "-r p -s s -devices -1", "analyze -r p -s s -CPU"),
        ("Analyze", "-r p -s s -devices 0 1", "analyze -r p -s s"),
    ],
)
def test_a_command_line_of_dlnest_is_one_of_roost(name: str, typed: str, here: str) -> None:
    assert translate(name, shlex.split(typed)).words == shlex.split(here)


def test_what_is_not_as_it_was_is_said(messages: Messages) -> None:
    for name, typed in (("Run", "-c r -devices 0 1"), ("Analyze", "-r p -s s -devices 0")):
        (note,) = translate(name, typed.split()).notes
        messages.check(note)
    assert translate("Run", ["-c", "r", "-ss"]).is_silent


@pytest.mark.parametrize(
    ("name", "typed", "word"),
    [
        ("Run", "-c r.json -CPUU", "'-CPU'"),
        ("Run", "-c", "-c CFG"),
        ("Run", "", "-c"),
        ("Run", "-c r.json other", "'other'"),
        ("Run", "-c r.json -devices", "-devices"),
        ("Run", "-c r.json -devices one", "'one'"),
        ("Run", "-c r.json -CPU=1", "-CPU"),
        ("Analyze", "-r p", "-s"),
        ("Local", "-p 3", "'-p'"),
        ("Server", "--logging=info", "'--logging'"),
    ],
)
def test_a_wrong_command_line_names_the_word(name: str, typed: str, word: str, messages: Messages) -> None:
    with pytest.raises(UsageError) as error:
        translate(name, typed.split())
    assert word in str(error.value)
    messages.check(error.value)


def run(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"roost.compat.dlnest.{name}", *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_are_there(name: str, tmp_path: Path) -> None:
    said = run(name, "--help", cwd=tmp_path)
    assert said.returncode == 0 and said.stdout.startswith(f"python -m roost.compat.dlnest.{name}")
    wrong = run(name, "-xyz", cwd=tmp_path)
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: ") and wrong.stderr.count("\n") == 1


def test_they_become_roost(tmp_path: Path) -> None:
    said = run("Run", "-c", "none.json", cwd=tmp_path)
    assert said.returncode == 4 or said.returncode == 3, said.stderr
    assert said.stderr.startswith("roost run -c none.json\nerror: ")
    said = run("Local", cwd=tmp_path)
    assert (said.returncode, said.stdout) == (0, "Waiting for command...\n")


def test_every_command_exists() -> None:
    assert {program.words[0] for program in PROGRAMS.values()} <= set(COMMANDS)
