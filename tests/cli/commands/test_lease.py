from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Terminal, roost


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("ROOST_DEVICES", "sim:2x24GB")


@pytest.fixture
def shell() -> Iterator[Terminal]:
    terminal = Terminal("lease", "--gpus", 2, SHELL="/bin/sh", PS1="ready> ")
    yield terminal
    terminal.kill()


def test_the_command_is_run_with_its_own_options() -> None:
    done = roost("lease", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $1; exit 7", "sh", "--wait")
    assert (done.returncode, done.stdout) == (7, "SIM-0 --wait\n")
    assert "GPU 0 (simulated)" in done.stderr and done.stderr.count("\n") == 1


def test_an_option_that_is_none_is_no_command() -> None:
    done = roost("lease", "--gpu", "2", "--", "true")
    assert done.returncode == 2 and "--gpu" in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--gpus", "0"), 2, "--gpus"),
        (("-m", "-5"), 2, "-m"),
        (("--time-limit", "soon"), 2, "90s, 10min, 11h30m"),
        (("--time-limit", "0.1s", "sleep", "60"), 143, "0.1s"),
        (("-m", "8"), 2, "8GB"),
        (("-m", "99GiB", "true"), 5, "99.0 GB"),
        (("--gpus", "3"), 5, "3 GPUs"),
        (("no-such-program",), 3, "'no-such-program'"),
    ],
)
def test_what_cannot_be_is_refused(options: tuple[str, ...], code: int, said: str) -> None:
    done = roost("lease", *options)
    assert done.returncode == code and said in done.stderr


def test_a_shell_has_the_terminal_and_the_cards_until_it_ends(shell: Terminal) -> None:
    shell.wait_for("ready> ")
    shell.type("echo cards: $CUDA_VISIBLE_DEVICES")
    shell.wait_for("cards: SIM-0,SIM-1\r\n")
    done = roost("lease", "true")
    assert done.returncode == 5
    assert "GPU 0, GPU 1: " in done.stderr and "--wait" in done.stderr
    shell.type("sh -c 'echo be\"\"gun; exec sleep 600'")
    shell.wait_for("begun")
    shell.press_ctrl_c()  # to what runs in the foreground, and not to the shell or to us
    shell.type("exit 9")
    code, _ = shell.end()
    assert code == 9
    assert roost("lease", "--gpus", "2", "true").returncode == 0


def test_who_waits_gets_the_cards_when_the_shell_has_ended(shell: Terminal) -> None:
    shell.wait_for("ready> ")
    waits = Terminal("lease", "--wait", "--", "sh", "-c", "echo has $CUDA_VISIBLE_DEVICES")
    waits.wait_for("waiting")
    shell.type("exit")
    shell.end()
    code, seen = waits.end()
    # The shell gives its two cards back one after the other.
    assert code == 0 and re.search(r"has SIM-[01]\b", seen)


def test_ctrl_c_ends_the_waiting(shell: Terminal) -> None:
    shell.wait_for("ready> ")
    waits = Terminal("lease", "--wait", "--", "true")
    waits.wait_for("waiting")
    waits.press_ctrl_c()
    code, _ = waits.end()
    assert code == 130
    os.write(shell.fd, b"\x04")
    assert shell.end()[0] == 0
