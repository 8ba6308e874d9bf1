"""The keys of programs: equal if the processes start identically, different otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import roost
from roost.supervisor.forkserver import environment_key

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

COMMAND = ["python", "-m", "roost.worker"]
ENV = {"PATH": "/bin", "HOME": "/root"}


def test_what_a_terminal_or_a_run_sets_is_not_read_at_the_start() -> None:
    more = {
        "SSH_TTY": "x",
        "TERM": "x",
        "_": "x",
        "ROOST_TOKEN": "x",
        "RANK": "3",
        "CUDA_VISIBLE_DEVICES": "1",
        "XDG_CACHE_HOME": "/x",
    }
    assert environment_key.startup_variables(ENV | more) == ENV
    found = environment_key.environment_key(COMMAND, ENV)
    assert found is not None and environment_key.environment_key(COMMAND, ENV | more) == found
    assert environment_key.environment_key(COMMAND, dict(reversed(ENV.items()))) == found


@pytest.mark.parametrize(
    "name", ["TERMINFO", "RANKS", "_X", "LD_PRELOAD", "PYTHONHASHSEED", "OMP_NUM_THREADS"]
)
def test_anything_else_makes_another(name: str) -> None:
    assert environment_key.environment_key(COMMAND, ENV | {name: "1"}) != environment_key.environment_key(
        COMMAND, ENV
    )


def test_so_do_the_command_and_what_the_caller_may_do() -> None:
    found = environment_key.environment_key(COMMAND, ENV)
    assert environment_key.environment_key([*COMMAND, "-v"], ENV) != found
    before = os.umask(0o77)
    try:
        assert environment_key.environment_key(COMMAND, ENV) != found
    finally:
        os.umask(before)
    assert environment_key.environment_key(COMMAND, ENV) == found


@pytest.mark.parametrize("path", ["", ":/a", "/a:", "/a::/b", "lib", "/a:lib"])
def test_a_relative_path_is_another_in_each_folder(path: str) -> None:
    assert environment_key.environment_key(COMMAND, ENV | {"PYTHONPATH": "/a:/b"}) is not None
    assert environment_key.environment_key(COMMAND, ENV | {"PYTHONPATH": path}) is None


def test_signals_that_the_caller_ignores_are_ignored_by_a_worker() -> None:
    found = environment_key.environment_key(COMMAND, ENV)
    before = signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    try:
        assert environment_key.environment_key(COMMAND, ENV) != found
    finally:
        signal.signal(signal.SIGXCPU, before)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does: every worker ignores it
    try:
        assert environment_key.environment_key(COMMAND, ENV) == found
    finally:
        signal.signal(signal.SIGHUP, before)


def test_who_was_started_by_posix_spawn_finds_the_same() -> None:
    script = f"import sys; sys.path.insert(0, {str(Path(roost.__file__).parents[1])!r})\n"
    script += "from roost.supervisor.forkserver.environment_key import environment_key\n"
    script += f"print(environment_key({COMMAND}, {ENV}), flush=True)"
    command = [sys.executable, "-I", "-S", "-c", script]
    usual = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    read_fd, its_fd = os.pipe()
    with open(read_fd, "rb") as output:
        pid = os.posix_spawn(
            command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, its_fd, 1)],
            setsigdef=[signal.SIGTERM],
        )  # fmt: skip
        os.close(its_fd)
        assert output.read() == usual != b""
    assert os.waitpid(pid, 0)[1] == 0


def test_what_cannot_be_read_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_key, "Path", lambda _: tmp_path)
    assert environment_key.environment_key(COMMAND, ENV) is None
