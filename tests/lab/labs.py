"""A lab for a test: its queue, its daemon once it is started, and simulated cards."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from roost.base.system import process_identity
from roost.devices.resource_request import ResourceRequest, TaskOptions
from roost.lab.background import background_process, daemon_presence
from roost.lab.background.daemon_presence import DaemonRecord
from roost.lab.queue import package_roots, task_file
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED, Task
from roost.operations import lab
from roost.operations.programs.program_package import TypedProgram, prepare_program
from roost.operations.programs.submit_program import create_program_task, submit_program
from roost.operations.queue import new_tasks, submit
from roost.operations.queue.new_tasks import NewTasks
from roost.operations.queue.resources import TaskConditions
from roost.operations.queue.submit import SubmitRequest
from roost.supervisor.guard_start import GuardProcess
from roost.supervisor.session_spec import SessionSpec
from tests import processes
from tests.waiting import MAX_SECONDS, wait_for


def options(need: ResourceRequest | None, **wanted: Any) -> TaskOptions:
    """Returns options that give this request; None: a task on the CPU."""
    need = need or ResourceRequest()
    return TaskOptions(
        gpus=need.cards,
        cpus=need.cores,
        host_memory_mb=need.host_memory_mb,
        memory_mb=need.memory_mb,
        whole=need.whole,
        time_limit=need.time_limit,
        opportunistic=need.opportunistic,
        no_restart=need.no_restart,
        **wanted,
    )


@contextmanager
def two_card_lab(folder: Path) -> Iterator[Lab]:
    """A lab of two simulated cards in a folder, which is the environment of the block and ends with it."""
    lab = Lab(folder, "sim:2x24GB")
    with lab.here():
        yield lab
    lab.close()


def submit_command(
    command: Sequence[str], options: TaskOptions, *, name: str | None = None, folder: Path | None = None
) -> NewTasks:
    """Queues a command of a folder, by default the current one, without a copy of it."""
    program = TypedProgram(command=command, folder=folder or Path.cwd(), in_place=True, name=name)
    return submit_program(program, options)


class Lab:
    """The lab of one user.

    Args:
        folder: Holds its state, its packages and where its tasks run.
        cards: As in ROOST_DEVICES.
        leases: The folder that all users share; one of its own when None.
    """

    def __init__(self, folder: Path, cards: str = "sim:4x24GB", *, leases: Path | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.state = folder, folder / "state" / "lab"
        self._environment = {
            "ROOST_STATE": str(folder / "state"),
            "ROOST_LEASES": str(leases if leases is not None else folder / "leases"),
            "ROOST_DEVICES": cards,
        }

    @contextmanager
    def here(self) -> Iterator[None]:
        """Runs the block in the environment and the folder of this user."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self._environment.items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            yield

    def store(self) -> QueueStore:
        return QueueStore.open(self.state)

    def task(self, script: str, *, need: ResourceRequest | None = None, **wanted: Any) -> Task:
        """Creates a task that is in no queue yet."""
        with self.here():
            conditions = TaskConditions(
                **{name: wanted.pop(name) for name in TaskConditions._fields if name in wanted}
            )
            program = TypedProgram(command=["/bin/sh", "-c", script], folder=Path.cwd(), in_place=True)
            with prepare_program(program) as draft:
                task = create_program_task(draft, options(need, **wanted), conditions)
            task_file.write(task, self.state)
            return task

    def queue(self, script: str, **wanted: Any) -> Task:
        """Queues a script without waking a daemon."""
        task = self.task(script, **wanted)
        with self.here(), lab.open_queue() as store:
            package_roots.add(self.state, [Path(task.package)])
            store.submit([task])
        return task

    def submit(self, script: str, **wanted: Any) -> str:
        """Queues a script as a user would. Returns the id of the task."""
        task = self.task(script, **wanted)
        with self.here():
            new_tasks.enqueue([task])
        return task.id

    def train(
        self, config: Path, *overrides: str, need: ResourceRequest | None = None, **wanted: Any
    ) -> Task:
        """Submits a training as a user would. Returns its task."""
        request = SubmitRequest(
            config=config,
            overrides=[f"save_root={self.folder / 'runs'}", *overrides],
            options=options(need, **wanted),
        )
        with self.here():
            (task,) = submit.submit(request).tasks
        return task

    def ask(self, id: str, how: str) -> None:
        """Raises Refused if it has ended."""
        with self.store() as store:
            store.request_stop(id, how)
            store.wake_daemon()

    def start(self) -> DaemonRecord:
        with self.here():
            return lab.start()

    def kill_daemon(self) -> None:
        """Kills the watchdog of the daemon, then the daemon: it is not restarted."""
        found = daemon_presence.find_daemon(self.state)
        assert found is not None
        kill_with_watchdog(found)

    def kill_daemon_alone(self) -> DaemonRecord:
        """Kills the daemon, which its watchdog restarts. Returns the record of the killed one."""
        found = daemon_presence.find_daemon(self.state)
        assert found is not None
        process_identity.send_signal(signal.SIGKILL, found.pid, found.start_ticks, found.boot_id)
        wait_for(lambda: not found.is_alive)
        return found

    def tasks(self) -> list[Task]:
        with self.store() as store:
            return store.tasks()

    def one(self, id: str) -> Task:
        with self.store() as store:
            return store.task(id)

    def wait_for(self, id: str, *states: str, timeout_seconds: float = MAX_SECONDS) -> Task:
        """Waits until a task is in one of these states, ended if none is named. Returns it."""
        with self.store() as store:
            wait_for(lambda: store.task(id).state in (states or ENDED), timeout_seconds)
            return store.task(id)

    def wait_for_all(
        self,
        look: Callable[[Sequence[Task]], None] = lambda _: None,
        *,
        timeout_seconds: float = MAX_SECONDS,
    ) -> list[Task]:
        """Waits until all tasks have ended; calls ``look`` with them from time to time."""
        deadline = time.monotonic() + timeout_seconds
        with self.store() as store:
            tasks = store.tasks()
            while any(task.state not in ENDED for task in tasks):
                assert time.monotonic() < deadline, [task for task in tasks if task.state not in ENDED]
                look(tasks)
                time.sleep(0.05)
                tasks = store.tasks()
            return tasks

    def lines(self, name: str) -> list[list[str]]:
        """Returns the lines that the scripts have appended to a file, split into words."""
        path = self.folder / name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def log(self) -> str:
        return (self.state / "daemon.log").read_text()

    def close(self) -> None:
        """Ends the daemon, and the processes that a failed test has left."""
        if not self.state.exists():
            return
        with self.here():
            lab.stop()
        processes.kill_all_in(self.folder)
        wait_for(lambda: not processes.living_in(self.folder))


def kill_with_watchdog(one: background_process.ProcessRecord) -> None:
    """Kills a background process with its watchdog: it is not restarted."""
    os.kill(one.pid, signal.SIGSTOP)  # it would notice the end of its watchdog
    kill_watchdog(one)
    os.kill(one.pid, signal.SIGKILL)
    wait_for(lambda: not one.is_alive)


def kill_watchdog(one: background_process.ProcessRecord) -> None:
    """Kills the watchdog of a background process."""
    stat = process_identity.read_stat(one.pid)
    assert stat is not None
    assert b"watchdog.py" in Path(f"/proc/{stat.parent_pid}/cmdline").read_bytes()
    os.kill(stat.parent_pid, signal.SIGKILL)
    wait_for(lambda: processes.is_gone(stat.parent_pid))


def record_of(task: Task) -> dict[str, Any]:
    """Returns the record of a task's newest session."""
    return dict(json.loads((Path(task.package) / "sessions" / f"{task.session}.json").read_bytes()))


def kill_guard(spec: SessionSpec, guard: GuardProcess) -> None:
    """Kills a guard instead of sending its spec: in place of `guard_start._send_spec`."""
    guard.kill()
    assert guard.stdin is not None
    guard.stdin.close()


def kill_watchers(task: Task) -> None:
    """Sends SIGKILL to guard and supervisor at once, so that neither can record the end of the other."""
    record = record_of(task)
    for pid in (record["guard_pid"], record["pid"]):
        os.kill(pid, signal.SIGSTOP)
    for pid in (record["guard_pid"], record["pid"]):
        os.kill(pid, signal.SIGKILL)
