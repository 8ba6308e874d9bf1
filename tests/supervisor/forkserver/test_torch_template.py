"""A template: when it refuses to be one, what it watches, how it ends; several at once."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from roost.base.system import process_identity
from roost.package.package import PackageFolder
from roost.supervisor.forkserver import template_client, template_pool, torch_template
from roost.supervisor.forkserver.forked_worker import TOKEN_PLACEHOLDER, UNUSABLE_EXIT_CODE
from roost.supervisor.forkserver.template_client import ForkedGuard
from roost.supervisor.forkserver.template_pool import TemplatePool
from tests import warming
from tests.supervisor.forkserver import test_template_pool
from tests.supervisor.forkserver.test_template_pool import begun, is_warm, record, wait_until_ready
from tests.waiting import wait_for
from tests.warming import forks, spec, templates

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

project = test_template_pool.project
SRC = Path(__file__).parents[3] / "src"
PROGRAM = """
import os, sys, threading, time
from pathlib import Path
from roost.supervisor.forkserver import template_process, torch_template as module
def load():
    {load}
    return set()
module._load_torch, module._reset_process_state = load, list
template_process.serve(sys.argv[1], module.load())
"""


def started(path: Path, load: str) -> subprocess.Popen[str]:
    """A template that loads this; its stdin has no writer."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {**os.environ, "ROOST_TOKEN": TOKEN_PLACEHOLDER, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", PROGRAM.format(load=load), str(path)]
    with ours, its:
        return subprocess.Popen(command, stdin=its, stderr=subprocess.PIPE, env=env, text=True)


@pytest.mark.parametrize(
    ("load", "fact"),
    [
        ("os.open('/dev/null', os.O_RDONLY)", "['"),
        (
            "threading.Thread(target=time.sleep, args=[9], daemon=True).start()",
            "thread",
        ),
        (
            "module._exit_unusable('it draws random numbers')",
            "it draws random numbers",
        ),
    ],
)
def test_what_a_child_could_not_do_without_is_refused(tmp_path: Path, load: str, fact: str) -> None:
    process = started(tmp_path / "socket", load)
    said = process.communicate(timeout=100)[1]
    assert process.returncode == UNUSABLE_EXIT_CODE and fact in said
    assert not list(tmp_path.iterdir())


def test_what_a_killed_one_has_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "socket.new").touch()
    process = started(tmp_path / "socket", "pass")
    assert process.communicate(timeout=100)[1] == "" and process.returncode == 0  # its stdin had ended
    assert not list(tmp_path.iterdir())


# --- with torch ---------------------------------------------------------------------------------------------


def test_no_start_waits_for_a_template_whose_queue_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(template_client.FOLDER_VARIABLE, str(tmp_path))
    path = template_client.worker_template(spec())
    assert path is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as paused:
        paused.bind(str(path))
        with template_client._connect(path) as client, pytest.raises(BlockingIOError):
            while True:
                client.send(b"")
        assert not forks(spec()) and path.exists()


@pytest.mark.soak
def test_what_is_changed_while_it_is_loaded_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    with templates(tmp_path / "own", waits=False) as own:
        [known] = own._workers.values()
        maps = Path(f"/proc/{known.process.pid}/maps")
        wait_for(lambda: "libtorch" in maps.read_text())
        (folder / "installed.py").touch()
        wait_for(known.path.exists)
        assert not forks(spec())


@pytest.mark.soak
def test_without_descriptors_for_another_client_it_keeps_its_guards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with templates(tmp_path / "own") as own:
        [known] = own._workers.values()
        first = template_client.fork_guard(spec(), [])
        assert first is not None
        there = len(os.listdir(f"/proc/{known.process.pid}/fd"))  # noqa: PTH208
        resource.prlimit(known.process.pid, resource.RLIMIT_NOFILE, (there, there))
        assert not forks(spec())
        first.stdin.close()
        first.stderr.close()
        assert first.wait(timeout=100) == 1 and known.process.wait(timeout=100) == 0


RECORD = """
import os
from roost.base.system.cold_restart import is_read_ahead
from roost.supervisor.forkserver import torch_template
torch_template._import_first_modules()
kind = type(os.environ)
read, names = kind.__getitem__, set()
kind.__getitem__ = lambda self, name: names.add(name) or read(self, name)
torch_template._import_ahead()
print(len(names), *sorted(name for name in names if not is_read_ahead(name)))
"""


@pytest.mark.parametrize("device", ["/dev/nvidiactl", "/dev/kfd", "/dev/dri", "/dev/dxg"])
def test_with_any_gpu_no_step_is_taken_ahead(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backward pass reads the number of GPUs; WSL has one file for those of every maker."""
    monkeypatch.setattr(Path, "exists", lambda path: str(path) == device)
    assert torch_template._has_accelerator()
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert not torch_template._has_accelerator()


def test_every_variable_that_torch_reads_ahead_is_known() -> None:
    done = subprocess.run([sys.executable, "-c", RECORD], stdout=subprocess.PIPE, text=True, check=True)
    number, *unknown = done.stdout.split()
    assert int(number) > 50 and unknown in ([], ["TORCHINDUCTOR_CACHE_DIR"])


# --- its end ------------------------------------------------------------------------------------------------


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates that load nothing, for what does not depend on it."""
    monkeypatch.setattr(
        template_pool, "_WORKER_TEMPLATE_ARGUMENTS", ("-P", "-c", PROGRAM.format(load="pass"))
    )


@pytest.mark.usefixtures("without_torch")
def test_a_template_that_is_killed_or_paused_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with templates(tmp_path / "own") as kept:
        [known] = kept._workers.values()
        known.process.kill()
        known.process.wait()
        assert not forks(spec())
        kept.prepare(spec())
        [known] = kept._workers.values()
        warming.wait_until_ready(tmp_path / "own")
        assert forks(spec())
        known.process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr("roost.supervisor.forkserver.template_client._ANSWER_SECONDS", 0.2)
        assert not forks(spec())
        known.process.send_signal(signal.SIGCONT)
        assert known.process.wait(timeout=100) == 0  # it could get no more requests
    assert not list((tmp_path / "own").iterdir())


def test_daemons_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of two with one pid ends the template of the other; what killed ones have left is removed."""
    monkeypatch.setenv(template_client.FOLDER_VARIABLE, str(tmp_path / "warm"))
    first, second = TemplatePool(), TemplatePool()
    assert first.guard_template != second.guard_template
    abandoned = first.guard_template.with_name("7-00000000.guards")
    try:
        first.open()
        wait_for(lambda: template_client.is_listening(first.guard_template))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left_behind:
            left_behind.bind(str(abandoned))
        second.open()
        wait_for(lambda: template_client.is_listening(second.guard_template))
        assert not abandoned.exists() and template_client.is_listening(first.guard_template)
        second.close()
        assert not second.guard_template.exists() and template_client.is_listening(first.guard_template)
    finally:
        first.close()
        second.close()
    assert list((tmp_path / "warm").iterdir()) == []


def test_a_template_that_ends_keeps_the_socket_of_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(template_client.FOLDER_VARIABLE, str(tmp_path / "warm"))
    first, second = TemplatePool(), TemplatePool()
    second.guard_template = first.guard_template
    try:
        first.open()
        wait_for(lambda: template_client.is_listening(first.guard_template))
        assert first._guards is not None
        os.kill(first._guards.process.pid, signal.SIGKILL)
        first._guards.process.wait()
        second.open()
        wait_for(lambda: template_client.is_listening(second.guard_template))
        first.close()
        assert template_client.is_listening(second.guard_template)
    finally:
        first.close()
        second.close()


@pytest.mark.usefixtures("without_torch")
def test_one_whose_files_were_changed_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with templates(tmp_path / "own") as own:
        assert forks(spec())
        (folder / "installed.py").touch()
        assert not forks(spec())
        [known] = own._workers.values()
        known.process.wait(timeout=100)


def test_a_forked_guard_continues_without_the_template_and_leaves_nothing(
    project: Path, tmp_path: Path
) -> None:
    with templates(tmp_path / "own"):
        started = begun(project, "+waits=true")
        assert is_warm(started) and isinstance(started.process, ForkedGuard)
        wait_until_ready(started)
    found = record(started)
    assert PackageFolder.open(started.package).state == "running"
    process_identity.send_signal(signal.SIGQUIT, found["pid"], found["start_ticks"], found["boot_id"])
    assert started.process.wait(timeout=100) == 1  # the template, which knows the exit status, is gone
    assert record(started)["state"] == "stopped"
