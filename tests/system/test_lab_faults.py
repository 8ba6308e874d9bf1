"""Each fault of a lab once, for real. The others are where their module is:

- F2, a killed daemon: `test_lab`; F17, the clock: `tests/lab/test_daemon`, `test_stall`
- F19, two daemons: `tests/lab/test_daemon`, `tests/operations/test_lab`
- F20, a locked queue, and F26, one name in one second: `tests/lab/test_store`, `test_daemon`
- F21, a damaged queue: `tests/lab/test_database`, `test_rebuild`
- F25, a package that is removed: `test_removed`, `tests/lab/executors/test_local`
- F27, a stop at any moment: `tests/lab/test_daemon`, `test_store_sequences`
- F33, few descriptors: `tests/lab/test_daemon`
- F36, a driver that hangs: `tests/devices/test_nvml`; its answers: `test_answer`, `test_driver` beside it

- of F18, the port of several machines: `tests/operations/test_nodes`

Here: F1, F7, F15, F18, F23, F24, F25, F31, F38, F40.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import exact
import msgspec
import pytest

from roost.base.errors import RoostError
from roost.devices.resource_request import ResourceRequest
from roost.lab.background import daemon_presence
from roost.lab.queue.task import (
    CRASHED,
    FAILED,
    KILL,
    LIVE,
    PENDING,
    RUNNING,
    STOP,
    STOPPED,
    SUCCEEDED,
    Task,
    new_id,
)
from roost.operations.queue import new_tasks
from roost.package import live_progress
from roost.package.package import PackageFolder
from roost.supervisor.processes.process_tree import descendants
from tests.lab.labs import Lab, kill_watchers, record_of
from tests.mounting import may_mount
from tests.processes import is_gone, living_in, marked, peak_mb
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the lab needs Linux")

RUDE = Path(__file__).parent / "rude_project" / "config.yaml"
STORM = Path(__file__).with_name("storm.py")
MB = 2**20
MOST_MEMORY_MB = 120


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab")
    yield lab
    lab.close()


def python(code: str) -> str:
    """A script that runs this code."""
    return f"exec {shlex.quote(sys.executable)} -S -c {shlex.quote(code)}"


def output(task: Task) -> str:
    return (Path(task.package) / "_output.txt").read_text(errors="replace")


def step_of(task: Task) -> int:
    look = live_progress.read(Path(task.package) / "progress")
    return look.step if look is not None else 0


# --- F1, F15, F31: what is killed


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.soak)])
@pytest.mark.timeout(300)
def test_a_killed_training_goes_on_bit_for_bit(lab: Lab, tmp_path: Path, kills: int) -> None:
    """F1, and of F15 that the loader workers of a killed process die with it."""
    settings = ["net=mlp", f"max_epochs={2 + kills // 2}", "pause=0.01", "data.num_workers=1"]
    undisturbed = exact.start(tmp_path / "alone", settings)
    task = lab.train(exact.PROJECT / "config.yaml", *settings, retries=kills)
    chance = random.Random(kills)
    for attempt in range(1, kills + 1):
        wait_for(lambda number=attempt: lab.one(task.id).attempt == number)
        running = lab.wait_for(task.id, RUNNING)
        least = step_of(task) + 1 + chance.randrange(3)
        wait_for(lambda number=least: step_of(task) >= number)
        worker = record_of(running)["worker_pid"]
        loaders = descendants(worker)
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda number=attempt: lab.one(task.id).attempt > number)  # with its pauses
        assert loaders and all(map(is_gone, loaders)), "nothing of it is left"
        first = json.loads((Path(task.package) / "sessions" / f"{running.session}.json").read_bytes())
        assert first["state"] == CRASHED and "SIGKILL" in first["error"]
    ended = lab.wait_for(task.id)
    assert (ended.state, ended.attempt) == (SUCCEEDED, kills + 1)
    assert exact.wait(undisturbed) == 0
    assert exact.fingerprint(Path(task.package)) == exact.fingerprint(undisturbed.package)


@pytest.mark.timeout(120)
def test_a_killed_loader_worker_is_named(lab: Lab) -> None:
    """F15."""
    task = lab.train(RUDE, "way=waits", "data.num_workers=1", "samples=5000", "max_steps=1000")
    running = lab.wait_for(task.id, RUNNING)
    wait_for((Path(task.package) / "waiting").exists)
    loaders = descendants(record_of(running)["worker_pid"])
    for pid in loaders:
        os.kill(pid, signal.SIGKILL)
    (Path(task.package) / "go").touch()
    ended = lab.wait_for(task.id)
    assert len(loaders) == 1 and ended.state == FAILED
    assert f"loader worker 0 (pid {loaders[0]})" in ended.reason
    assert living_in(Path(task.package)) == []


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"boot_id": "before"}, id="the machine went down"),
        pytest.param({"boot_id": "before", "host": "before"}, id="and came up under another name"),
    ],
)
def test_what_ran_before_a_reboot_goes_on(lab: Lab, changed: dict[str, str]) -> None:
    """F31, F40: all that lived is gone at once, and what is written down is of another boot."""
    id = lab.submit("echo begun >> begun; [ -e go ] && exit 0; exec sleep 600", retries=0)
    task = lab.wait_for(id, RUNNING)
    wait_for(lambda: lab.lines("begun"))
    about = lab.state / "daemon.json"
    lab.kill_daemon()
    worker = record_of(task)["worker_pid"]
    kill_watchers(task)
    wait_for(lambda: is_gone(worker))
    for path in (Path(task.package) / "sessions" / f"{task.session}.json", about):
        # By now another process of the new boot has the number of one of these.
        now = {name: os.getpid() for name in ("pid", "guard_pid") if name in json.loads(path.read_bytes())}
        path.write_text(json.dumps({**json.loads(path.read_bytes()), **now, **changed}))
    (lab.folder / "go").touch()
    lab.start()
    ended = lab.wait_for(id)
    assert (ended.state, ended.attempt, ended.session) == (SUCCEEDED, 2, 2)
    assert lab.lines("begun") == [["begun"], ["begun"]]


# --- F7, F18, F23, F24: what runs short


@pytest.mark.skipif(not may_mount(), reason="only root may mount a small disk")
def test_a_lab_whose_disk_is_full(tmp_path: Path) -> None:
    """F7, on a real disk of 1 MB (`lab_on_small_disk`)."""
    state = tmp_path / "state"
    state.mkdir()
    script = f"""
    mount -t tmpfs -o size=1m,mode=700 tmpfs {state} || exit 99
    exec {sys.executable} -m tests.system.lab_on_small_disk {tmp_path}
    """
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_daemon_that_may_not_write(lab: Lab) -> None:
    """F7, where mounting is not allowed: neither its queue nor its log can be written."""
    about = lab.start()
    task = lab.wait_for(lab.submit("until [ -e go ]; do sleep 0.01; done; exit 6"), RUNNING)
    before = resource.prlimit(about.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    (lab.folder / "go").touch()
    wait_for(lambda: record_of(task)["state"] == FAILED)
    waiting = lab.submit("exit 0")
    assert about.is_alive and lab.one(task.id).state in LIVE
    resource.prlimit(about.pid, resource.RLIMIT_FSIZE, before)
    assert lab.wait_for(task.id).exit_code == 6
    with lab.store() as store:
        store.wake_daemon()
    assert lab.wait_for(waiting).state == SUCCEEDED
    assert about.is_alive


@pytest.mark.timeout(120)
def test_a_port_that_another_process_took_meanwhile(lab: Lab) -> None:
    """F18: ranks meet at a file. The port that they are given is for others, and may be taken."""
    task = lab.train(RUDE, "devices=2", strategy="ddp")
    running = lab.wait_for(task.id, RUNNING)
    environment = Path(f"/proc/{record_of(running)['worker_pid']}/environ")
    wait_for(lambda: b"MASTER_PORT=" in environment.read_bytes())
    said = dict(one.split(b"=", 1) for one in environment.read_bytes().split(b"\0") if b"=" in one)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(said[b"MASTER_PORT"])))
        taken.listen()
        ended = lab.wait_for(task.id)
    assert ended.state == SUCCEEDED, output(task)
    assert len(record_of(ended)["ranks"]) == 2


@pytest.mark.parametrize("megabytes", [300, pytest.param(4000, marks=pytest.mark.soak)])
@pytest.mark.timeout(300)
def test_a_task_that_prints_too_much(lab: Lab, megabytes: int) -> None:
    """F23: its first and its last lines stay, and no process needs memory for the text between."""
    about = lab.start()
    id = lab.submit(f"echo first; head -c {megabytes}M /dev/zero | tr '\\0' x; echo; echo last; exit 3")
    watchers: set[int] = {about.pid}
    memory: dict[int, float] = {}

    def look(tasks: Any) -> None:
        if tasks[0].state == RUNNING and tasks[0].session and len(watchers) == 1:
            watchers.update(record_of(tasks[0])[name] for name in ("pid", "guard_pid"))
        memory.update({pid: mb for pid in watchers if (mb := peak_mb(pid))})

    (ended,) = lab.wait_for_all(look)
    assert (ended.id, ended.exit_code) == (id, 3)
    path = Path(ended.package) / "_output.txt"
    assert path.stat().st_size <= 201 * MB
    with path.open("rb") as file:
        assert file.read(6) == b"first\n"
        file.seek(-5, os.SEEK_END)
        assert file.read() == b"last\n"
    assert record_of(ended)["output_left_out_bytes"] > (megabytes - 201) * MB
    assert 0 < max(memory.values()) < MOST_MEMORY_MB, memory


def test_ten_gigabytes_are_read_in_little_memory(lab: Lab) -> None:
    """F23: `roost logs` of a file with a hole, as a supervisor leaves it that still runs."""
    ended = lab.wait_for(lab.submit("echo first"))
    with (Path(ended.package) / "_output.txt").open("ab") as file:
        file.truncate(10 * 2**30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast but one\nlast\n")
    code = f"""
import resource, subprocess, sys
command = [sys.executable, "-m", "roost.cli", "logs", {ended.package!r}]
print(subprocess.run([*command, "-n", "2"], capture_output=True, text=True, check=True).stdout)
print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *said, kilobytes = done.stdout.split("\n")[:-1]
    assert said[:2] == ["last but one", "last"] and said.count("last") == 2
    assert "first" in said and any("10,737,4" in line for line in said), said
    assert int(kilobytes) / 1024 < MOST_MEMORY_MB


@pytest.mark.parametrize("how", ["it ends", KILL])
def test_a_storm_of_processes_and_threads(lab: Lab, how: str) -> None:
    """F24: none is left of what forks all the time, forks twice, leaves its session, and hears no signal;
    meanwhile the lab goes on."""
    mark = f"{random.randrange(10**8, 10**9)}.5"
    storm = [sys.executable, "-S", str(STORM), mark, *(["ends"] if how == "it ends" else [])]
    id = lab.submit(
        f"exec {shlex.join(storm)}", need=ResourceRequest(cards=1)
    )  # so that a core is left for others
    wait_for((lab.folder / "stormy").exists)
    if how == KILL:
        assert len(marked(mark)) > 30
        assert lab.wait_for(lab.submit("exit 4")).exit_code == 4, "the lab goes on"
        lab.ask(id, KILL)
    ended = lab.wait_for(id)
    assert (ended.state, ended.exit_code) == ((FAILED, 5) if how == "it ends" else (STOPPED, 130))
    assert marked(mark) == []
    assert set(living_in(lab.folder)) <= {os.getpid()}


# --- F25: what is removed


@pytest.mark.parametrize("moment", ["while it trains", "while it waits to go on"])
def test_a_training_whose_package_is_removed_is_over_though_it_has_retries(lab: Lab, moment: str) -> None:
    settings, need = (
        ["net=mlp", "max_epochs=1000", "pause=0.02"],
        ResourceRequest(cards=1, opportunistic=True),
    )
    task = lab.train(exact.PROJECT / "config.yaml", *settings, need=need, retries=3)
    wait_for(lambda: step_of(task) > 2)
    if moment == "while it waits to go on":
        other = lab.submit("until [ -e go ]; do sleep 0.02; done", need=ResourceRequest(cards=4))
        lab.wait_for(other, RUNNING)
    begun = lab.one(task.id).attempt
    wait_for(lambda: (shutil.rmtree(task.package, ignore_errors=True), not Path(task.package).exists())[1])
    (lab.folder / "go").touch()
    ended = lab.wait_for(task.id)
    assert ended.state == FAILED and ended.attempt <= begun + 1, ended
    assert lab.wait_for(lab.submit("exit 0")).state == SUCCEEDED, "the lab goes on"
    wait_for(lambda: living_in(lab.folder / "runs") == [])
    assert not Path(task.package).exists()


# --- F38, F40: what is rude, and what is there twice


RUDE_COMMANDS = {
    "import os; os._exit(0)": (SUCCEEDED, 0),
    "import os; os._exit(7)": (FAILED, 7),
    "import sys; sys.exit(0)": (SUCCEEDED, 0),
    "import sys; sys.exit(75)": (FAILED, 75),
    "import os; os.closerange(0, 300); os._exit(3)": (FAILED, 3),
    "import os; os.chdir('/'); os.umask(0o777); os._exit(4)": (FAILED, 4),
    "import os, signal; signal.signal(15, signal.SIG_IGN); os._exit(5)": (FAILED, 5),
    "import os; os.kill(os.getpid(), 9)": (CRASHED, 1),
    "import os; os.abort()": (CRASHED, 1),
}
"""By their code, and how each must be recorded."""


def test_commands_that_spoil_their_process_are_recorded_as_they_ended(lab: Lab) -> None:
    """A command that is to be stopped ignores SIGTERM, once it says so."""
    tasks = {code: lab.queue(python(code)).id for code in RUDE_COMMANDS}
    ignores = "signal.signal(15, signal.SIG_IGN); open('deaf', 'w').close()"
    deaf = lab.queue(python(f"import signal, time; {ignores}; time.sleep(600)"))
    lab.start()
    wait_for((lab.folder / "deaf").exists)
    lab.wait_for(deaf.id, RUNNING)
    lab.ask(deaf.id, STOP)
    for code, id in tasks.items():
        ended = lab.wait_for(id)
        assert (ended.state, ended.exit_code) == RUDE_COMMANDS[code], code
        assert record_of(ended)["state"] == ended.state
    lab.ask(deaf.id, KILL)
    assert lab.wait_for(deaf.id).state == STOPPED


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("way", "state", "says"),
    [
        ("leaves", CRASHED, "exited with 0 before the run had ended"),
        ("spoils", SUCCEEDED, ""),
        pytest.param("exits", FAILED, "the project's code called sys.exit(0)", marks=pytest.mark.soak),
    ],
)
def test_a_training_has_succeeded_only_if_it_came_to_its_end(
    lab: Lab, way: str, state: str, says: str
) -> None:
    """F38."""
    ended = lab.wait_for(lab.train(RUDE, f"way={way}").id)
    assert ended.state == state and says in ended.reason, output(ended)
    assert (ended.exit_code == 0) == (state == SUCCEEDED)
    assert (step_of(ended) == 8) == (state == SUCCEEDED)


def test_two_labs_do_not_run_one_package_at_once(tmp_path: Path) -> None:
    """F40: the second one waits, and reports for what."""
    labs = [Lab(tmp_path / name, leases=tmp_path / "leases") for name in ("one", "two")]
    try:
        first, second = labs
        task = first.task("echo begun >> begun; until [ -e go ]; do sleep 0.01; done")
        with first.here():
            new_tasks.enqueue([task])
        first.wait_for(task.id, RUNNING)
        again = msgspec.structs.replace(task, id=new_id(time.time()))
        with second.here():
            new_tasks.enqueue([again])
        wait_for(lambda: "package" in second.one(again.id).reason)
        assert second.one(again.id).state == PENDING
        assert first.lines("begun") == [["begun"]]
        (first.folder / "go").touch()
        assert first.wait_for(task.id).state == SUCCEEDED
        with second.store() as store:
            store.wake_daemon()
        assert second.wait_for(again.id).state == SUCCEEDED
        assert (first.one(task.id).session, second.one(again.id).session) == (1, 2)
    finally:
        for lab in labs:
            lab.close()


def test_another_host_has_the_package(lab: Lab) -> None:
    """F40: it is locked, and the error names the host."""
    task = lab.wait_for(lab.submit("exec sleep 600"), RUNNING)
    path = Path(task.package) / "sessions" / "1.json"
    path.write_text(json.dumps({**record_of(task), "host": "far", "boot_id": "its own"}))
    other = [sys.executable, "-m", "roost.cli", "stop", task.package]
    done = subprocess.run(other, capture_output=True, text=True)
    assert done.returncode == 5 and "host far" in done.stderr
    with pytest.raises(RoostError, match=r"session 1 \(host far"):
        os.close(PackageFolder.open(task.package).lock())
    assert daemon_presence.find_daemon(lab.state) is not None
