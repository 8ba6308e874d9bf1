"""The session of a program that writes from Python: who may write, and what is left when something fails."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.base import durable
from roost.base.errors import CheckpointError, ConfigError, Refused
from roost.package import live_progress
from roost.package.checkpoints import checkpoint
from roost.package.owner import owner_file
from tests.messages import Messages
from tests.package.owner import other_machine
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def no_fault_left() -> Iterator[None]:
    yield
    durable.fault = None


def new(folder: Path) -> roost.Package:
    return roost.Package.new({"checkpoint": {"fast": 9}}, root=folder, name="one")


def full(*, when: Callable[[str], bool]) -> None:
    def refuse(operation: str, path: str) -> None:
        if operation == "open" and when(path):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    durable.fault = refuse


def in_child(work: Callable[[], bool]) -> bool:
    """Whether ``work`` was true in a forked child."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_forked_child_neither_writes_nor_ends_the_session(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.save(1)

        def child() -> bool:
            with pytest.raises(Refused, match="fork"):
                run.save(2)
            with pytest.raises(Refused, match="fork"):
                run.set_current(0)
            run.__exit__(None, None, None)
            return True

        assert in_child(child)
        assert run.state == "running" and run.save(3) == 1


def test_a_child_that_lives_on_does_not_keep_the_lock(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    with new(tmp_path) as run:
        run.save(1)
        pid = os.fork()
        if pid == 0:
            os.close(write_fd)
            os.read(read_fd, 1)
            os._exit(0)
    try:
        os.close(run.lock())
    finally:
        os.write(write_fd, b"x")
        os.waitpid(pid, 0)
        os.close(read_fd), os.close(write_fd)


def test_a_killed_program_reads_as_crashed_and_the_next_goes_on(tmp_path: Path) -> None:
    program = (
        "import roost, sys\n"
        "with roost.Package.new({}, root=sys.argv[1], name='one') as run:\n"
        "    run.save('first'); print(flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        run = roost.open_package(tmp_path / "one")
        assert run.state == "running" and run.load() == "first"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert run.state == "crashed"
    with run:
        assert run.save("second") == 1
    assert [one.state for one in run.sessions()] == ["crashed", "succeeded"]
    assert checkpoint.read_manifests(run.checkpoints)[-1].line == [(0, 1)]


def test_no_space_for_the_session_leaves_none(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        full(when=lambda path: ".1.json" in path)
        with pytest.raises(OSError, match="No space"):
            run.save(1)
        assert run.sessions() == [] and run.state == "new"
        durable.fault = None
        assert run.save(1) == 0
    assert [one.number for one in run.sessions()] == [1]


def test_no_space_for_a_checkpoint_leaves_those_that_stand(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.save(1)
        full(when=lambda path: "state_1.ckpt" in path)
        with pytest.raises(OSError, match="No space"):
            run.save(2)
        durable.fault = None
        assert run.load() == 1 and run.save(3) == 1
    full(when=lambda path: "/sessions/" in path)
    with pytest.raises(OSError, match="No space"), run:
        run.save(4)
    durable.fault = None
    assert run.state == "succeeded" and run.load() == 3


def test_no_good_checkpoint_fails_the_session_and_begins_nothing(tmp_path: Path, messages: Messages) -> None:
    with new(tmp_path) as run:
        run.save(1)
    part = checkpoint.checkpoint_folder(run.checkpoints, 0) / "state.json"
    part.write_bytes(b"2")
    for _ in range(2):  # the second time it was set aside
        with pytest.raises(CheckpointError) as refused, run:
            run.save(2)
        messages.check(refused.value)
    assert [one.state for one in run.sessions()] == ["succeeded", "failed", "failed"]
    assert checkpoint.ids(run.checkpoints) == []
    os.close(run.lock())


def test_settings_that_mean_nothing_any_more_fail_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "/data")
    run = roost.Package.new({"data": "${env:MINE}"}, root=tmp_path, name="one")
    monkeypatch.delenv("MINE")
    with pytest.raises(ConfigError, match="MINE"), run:
        run.save(1)
    assert run.state == "failed"


def test_where_it_is_can_be_watched(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.save(1, step=5, epoch=2)
        seen = live_progress.read(run.progress)
        assert seen is not None and (seen.step, seen.epoch, seen.phase) == (5, 2, "training")
        run.save(1, step=8)
        run.set_current(0)
        seen = live_progress.read(run.progress)
        assert seen is not None and (seen.step, seen.phase) == (5, "training")
    seen = live_progress.read(run.progress)
    assert seen is not None and (seen.step, seen.phase) == (5, "ended")


def test_of_two_programs_one_is_refused(tmp_path: Path) -> None:
    """Both begin at once; each prints what became of its save, and the first holds on until both have."""
    run = new(tmp_path)
    program = (
        "import roost, sys\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "try:\n"
        "    with roost.open_package(sys.argv[1]) as run:\n"
        "        print(run.save('mine'), flush=True); sys.stdin.readline()\n"
        "except roost.RoostError as error:\n"
        "    print(type(error).__name__, flush=True)\n"
    )
    command = [sys.executable, "-c", program, str(run.path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    try:
        assert [process.stdout.readline() for process in both] == ["ready\n"] * 2
        for process in both:
            process.stdin.write("go\n")
            process.stdin.flush()
        assert sorted(process.stdout.readline() for process in both) == ["0\n", "Refused\n"]
    finally:
        for process in both:
            process.communicate("go\n" if process.poll() is None else None)
    wait_for(lambda: run.state == "succeeded")
    assert [one.state for one in run.sessions()] == ["succeeded"] and run.load() == "mine"


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_without_a_text_ends_the_session_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(Rude), new(tmp_path) as run:
        run.save(1, metrics={"loss": 1.0})
        raise Rude
    (session,) = run.sessions()
    assert (session.state, session.error) == ("failed", "Rude: <its str() raised RuntimeError>")
    assert run.records().series["loss"] == ([1], [1.0])


def test_rows_that_cannot_be_made_durable_hide_no_error(tmp_path: Path) -> None:
    def no_sync(operation: str, path: str) -> None:
        if operation == "fsync" and path.startswith("fd:"):
            raise OSError(errno.EIO, "Input/output error", path)

    with pytest.raises(OSError, match="Input/output"), new(tmp_path / "a") as run:
        run.save(1, metrics={"loss": 1.0})
        durable.fault = no_sync
    durable.fault = None
    assert run.state == "failed" and "Input/output" in str(run.sessions()[0].error)
    with pytest.raises(ValueError, match="mine") as caught, new(tmp_path / "b") as run:
        run.save(1, metrics={"loss": 1.0})
        durable.fault = no_sync
        raise ValueError("mine")
    durable.fault = None
    assert str(tmp_path) in caught.value.__notes__[0] or "Input/output" in caught.value.__notes__[0]
    assert str(run.sessions()[0].error).startswith("ValueError: mine")


@pytest.mark.parametrize(
    ("asked", "setting", "received"),
    [
        ({"metrics": {"m": "abc"}}, "metrics.m", "'abc'"),
        ({"metrics": {"m": [1]}}, "metrics.m", r"\[1\]"),
        ({"step": -5}, "step", "-5"),
        ({"step": 1.5}, "step", "1.5"),
        ({"step": 2**63}, "step", str(2**63)),
        ({"epoch": -1}, "epoch", "-1"),
        ({"metrics": {"step": 4.0}}, "metrics", "'step'"),
        ({"metrics": {"m": 1.0, "time": 4.0}}, "metrics", "'time'"),
    ],
)
def test_numbers_that_are_none_are_refused_before_anything_is_taken(
    tmp_path: Path, asked: dict[str, Any], setting: str, received: str, messages: Messages
) -> None:
    with new(tmp_path) as run:
        with pytest.raises(Refused, match=received) as refused:
            run.save(1, **asked)
        assert refused.value.setting == setting
        messages.check(refused.value)
        assert run.sessions() == []
        os.close(run.lock())


def test_what_is_made_current_is_read_once_and_with_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new(tmp_path) as run:
        run.save(1), run.save(2)
    read: list[str] = []
    real = checkpoint.verify

    def verify(path: Path) -> checkpoint.Manifest:
        assert run.state == "running"
        read.append(path.name)
        return real(path)

    monkeypatch.setattr(checkpoint, "verify", verify)
    with run:
        run.set_current(0)
        run.set_current(1)
    assert read == ["state_0.ckpt", "state_1.ckpt"]


def test_what_could_not_be_made_current_leaves_the_run_where_it_was(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        for n in range(3):
            run.save(n)
    (checkpoint.checkpoint_folder(run.checkpoints, 1) / "state.json").write_bytes(b"?")
    with run:
        with pytest.raises(CheckpointError, match=r"state_1\.ckpt"):
            run.set_current(1)
        assert run.current == 2 and len(run.sessions()) == 1
        assert run.save(3) == 3
    assert checkpoint.read_manifests(run.checkpoints)[-1].line == [(0, 3)]


def test_a_program_renews_its_ownership_and_saves_nothing_once_it_is_lost(tmp_path: Path) -> None:
    with new(tmp_path) as package:
        package.save({"n": 1}, step=1)
        path = owner_file.path_of(package.path)
        owner = owner_file.read(path)
        assert owner is not None and (owner.session, owner.pid) == (1, os.getpid())
        other_machine.write(package.path, session=2)
        with pytest.raises(Refused, match="taken over by host far"):
            package.save({"n": 2}, step=2)
    assert path.exists(), "it names the other session"
    assert [found.step for found in checkpoint.read_manifests(package.path / "Checkpoints")] == [1]


def test_a_program_is_refused_while_another_machine_writes(tmp_path: Path) -> None:
    with new(tmp_path) as package:
        package.save({"n": 1}, step=1)
    path = owner_file.path_of(package.path)
    assert not path.exists()
    other_machine.write(package.path, session=2)
    with roost.open_package(package.path) as package, pytest.raises(Refused, match="in use by host far"):
        package.save({"n": 2}, step=2)
    path.unlink()
    with roost.open_package(package.path) as package:
        package.save({"n": 2}, step=2)
    assert not path.exists()
