"""The overhead of the lab: start latency, gap between tasks, throughput of empty tasks, memory, long queues.

    python bench/lab.py [--rounds 15] [--tasks 1000] [--slots 2 16] [--rows 10000] [--only thousand]

1. From `roost submit` to a process that runs (it creates a file), with a running daemon and without one; from
   the call that queues a task whose package exists, to the same. Compared with a bare `subprocess`, and with
   ``gbatch`` of gflow. Then from the recorded end of a task to the start of the next process, in a queue with
   one slot.
2. ``--tasks`` tasks that run ``true``: the time per task to create the packages, to queue all at once, and
   until all are recorded as succeeded, with ``--slots`` tasks at once; and the CPU time of the daemon, and of
   its template process with all descendants, which is meaningful on a busy machine, too. Compared with
   task-spooler (``tsp``, if it is on the PATH), which never waits for the disk; with gflow; with a bare
   `subprocess`, one after another; and with small files that are written and synced one after another, by
   one thread and by 16.
3. Memory of daemon, template process, guard and supervisor, and the CPU time of each while idle.
4. With ``--rows`` pending tasks: `roost tasks`, memory and CPU time of the daemon, size of the queue.

gflow is measured if its programs are on the PATH (``pip install runqd`` into a separate environment; 0.4.18),
with its executor ``process``; the other executor runs each task in a tmux session. gflow checks every ten
seconds which tasks have ended, so two at once would take 5 seconds per task: it runs all of them at once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from roost.devices.resource_request import TaskOptions
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED, RUNNING, SUCCEEDED, Task, new_id
from roost.lab.sessions import session_control
from roost.operations import lab
from roost.operations.queue import new_tasks, submit_command
from roost.operations.queue.resources import TaskConditions
from roost.package.package import PackageFolder

QUIET = subprocess.DEVNULL
ROOST = [str(Path(sys.executable).with_name("roost"))]
IDLE_SECONDS = 10.0


@contextmanager
def temporary_lab(**rules: Any) -> Iterator[Path]:
    """Creates a lab in a temporary folder, and changes into it; stops its daemon at the end."""
    with tempfile.TemporaryDirectory() as name:
        before = Path.cwd()
        os.environ |= {"ROOST_STATE": name, "ROOST_LEASES": f"{name}/leases", "ROOST_DEVICES": "cpu"}
        os.chdir(name)
        try:
            with lab.open_queue() as store:
                store.set_setting("rules", rules)
            yield Path(name)
        finally:
            lab.stop()
            os.chdir(before)


def new_task(*command: str, begin: float | None = None) -> Task:
    return submit_command.create_command_task(command, TaskOptions(gpus=0), TaskConditions(begin))


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline, "waited for 600 s"
        time.sleep(0.0005)


def have_ended(store: QueueStore) -> bool:
    unended = f"SELECT 1 FROM task WHERE state NOT IN ({', '.join('?' * len(ENDED))}) LIMIT 1"
    return store._connection.execute(unended, ENDED).fetchone() is None


@contextmanager
def gflow() -> Iterator[Callable[..., str] | None]:
    """Gives a function that calls a program of gflow, with a separate daemon; None if it is not installed."""
    if not shutil.which("gflowd"):
        yield None
        return
    with tempfile.TemporaryDirectory() as home, socket.create_server(("localhost", 0)) as server:
        xdg = [
            f"XDG_{name}" for name in ("CONFIG_HOME", "DATA_HOME", "STATE_HOME", "CACHE_HOME", "RUNTIME_DIR")
        ]
        env = {**os.environ, **dict.fromkeys(["HOME", *xdg], home)}
        port = server.getsockname()[1]
        server.close()
        config = Path(home, "gflow", "gflow.toml")
        config.parent.mkdir()
        config.write_text(f'[daemon]\nhost = "localhost"\nport = {port}\n\n[executor]\ntype = "process"\n')

        def call(*command: str) -> str:
            return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

        def answers() -> bool:
            return subprocess.run(["gqueue"], env=env, stdout=QUIET, stderr=QUIET).returncode == 0

        daemon = subprocess.Popen(["gflowd", "-c", str(config)], env=env, stdout=QUIET, stderr=QUIET)
        try:
            wait_for(answers)
            yield call
        finally:
            daemon.terminate()
            daemon.wait()


def print_times(title: str, rows: dict[str, list[float]]) -> None:
    print(f"| {title} | median ms | p95 | min … max |\n|---|---|---|---|")
    for name, found in rows.items():
        ms = sorted(value * 1e3 for value in found)
        p95 = ms[min(len(ms) - 1, round(0.95 * len(ms)))]
        print(f"| {name} | {statistics.median(ms):.1f} | {p95:.1f} | {ms[0]:.1f} … {ms[-1]:.1f} |")
    print(flush=True)


# --- one after another ------------------------------------------------------------------------------------


def print_starts(rounds: int) -> None:
    kinds = ("bare subprocess", "queued, durable; daemon runs", "submit; daemon runs", "submit; no daemon")
    found: dict[str, list[float]] = {name: [] for name in kinds}
    with gflow() as call_gflow, temporary_lab(cores=4) as folder, lab.open_queue() as store:
        for number in range(rounds + 1):
            for index, name in enumerate(kinds):
                path = folder / f"first-{number}-{index}"
                task = new_task("touch", str(path)) if name.startswith("queued") else None
                lab.stop() if name.endswith("no daemon") else lab.ensure_daemon()
                argv = ["touch", str(path)] if index == 0 else [*ROOST, "submit", "--", "touch", str(path)]
                began = time.perf_counter()
                child = subprocess.Popen(argv, stdout=QUIET, stderr=QUIET) if task is None else None
                if task is not None:
                    new_tasks.enqueue([task])
                wait_for(path.exists)
                if number:  # the first round reads the files from the disk
                    found[name].append(time.perf_counter() - began)
                if child is not None:
                    child.wait()
                wait_for(lambda: have_ended(store))
            if call_gflow is not None:
                path, began = folder / f"first-{number}", time.perf_counter()
                call_gflow("gbatch", "touch", str(path))
                wait_for(path.exists)
                if number:
                    found.setdefault("gbatch of gflow; daemon runs", []).append(time.perf_counter() - began)
    found["end of a task → the next task runs"] = gaps_between_tasks(4 * rounds)
    print_times("until the process runs", found)


def gaps_between_tasks(rounds: int) -> list[float]:
    with temporary_lab(cores=1), lab.open_queue() as store:
        lab.ensure_daemon()
        new_tasks.enqueue([new_task("date", "+%s.%N") for _ in range(rounds + 1)])
        wait_for(lambda: have_ended(store))
        packages = [PackageFolder.open(task.package) for task in store.tasks()]
        began = sorted(float(package.output.read_text()) for package in packages)
        ended = sorted((package.sessions()[-1].record or {})["ended"] for package in packages)
    return [after - before for before, after in zip(ended, began[1:], strict=False)]


# --- a thousand -------------------------------------------------------------------------------------------


def print_throughput(count: int, slots: Sequence[int]) -> None:
    print(
        "| tasks that run true | at once | create | queue | run | all, ms per task "
        "| CPU ms of the daemon | of its children |\n|---|---|---|---|---|---|---|---|"
    )
    for most in slots:
        with temporary_lab(cores=most), lab.open_queue() as store:
            daemon = lab.ensure_daemon().pid
            moments = [time.perf_counter()]
            tasks = [new_task("true") for _ in range(count)]
            before = cpu_ms(daemon)
            moments.append(time.perf_counter())
            new_tasks.enqueue(tasks)
            moments.append(time.perf_counter())
            wait_for(lambda store=store: have_ended(store))
            moments.append(time.perf_counter())
            spent = [(b - a) / count for a, b in zip(before, cpu_ms(daemon), strict=True)]
            assert {task.state for task in store.tasks()} == {SUCCEEDED}
        parts = [(b - a) / count * 1e3 for a, b in pairwise(moments)]
        cells = " | ".join(f"{part:.2f}" for part in (*parts, sum(parts), *spent))
        print(f"| roost, {count} | {most} | {cells} |", flush=True)
        if shutil.which("tsp"):
            print(f"| tsp, {count} | {most} | | {run_in_tsp(count, most)} | | |", flush=True)
    if not shutil.which("tsp"):
        print("| tsp | not installed | | | | | | |")
    with gflow() as call_gflow:
        if call_gflow is None:
            print("| gflow | not installed | | | | | | |")
        else:
            print(f"| gflow, {count} | all | | {run_in_gflow(call_gflow, count)} | | |", flush=True)
    began = time.perf_counter()
    for _ in range(count):
        subprocess.run(["true"], check=True)
    print(f"| subprocess, {count} | 1 | | | | {(time.perf_counter() - began) / count * 1e3:.2f} | | |")
    for threads in (1, 16):
        print(f"| file, synced, 320 | {threads} | | | | {write_synced_files(320, threads):.2f} | | |")
    print(flush=True)


def cpu_ms(daemon: int) -> tuple[float, float]:
    """Returns the CPU ms of a daemon, and of its children with all their descendants that have ended."""
    ms = 1e3 / os.sysconf("SC_CLK_TCK")
    return ticks(daemon) * ms, sum(ticks(pid, of_children=True) for pid in children(daemon)) * ms


def run_in_gflow(call: Callable[..., str], count: int) -> str:
    """Runs the tasks in gflow; returns the cells of the table: queue, run, all."""
    began = time.perf_counter()
    call("gbatch", "--array", f"1-{count}", "true")
    queued = time.perf_counter()

    def have_finished() -> bool:
        time.sleep(0.05)  # its answers cost time that it needs for its tasks
        jobs = json.loads(call("gqueue", "-a", "-o", "json"))["jobs"]
        assert not {"Failed", "Timeout", "Cancelled"} & {job["state"] for job in jobs}
        return [job["state"] for job in jobs] == ["Finished"] * count

    wait_for(have_finished)
    return per_task(count, began, queued, time.perf_counter())


def per_task(count: int, began: float, queued: float, ended: float) -> str:
    """Returns the cells of the table: queue, run, all."""
    parts = (queued - began, ended - queued, ended - began)
    return " | ".join(f"{part / count * 1e3:.2f}" for part in parts)


def run_in_tsp(count: int, slots: int) -> str:
    """Runs the tasks in task-spooler; returns the cells of the table: queue, run, all."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TMPDIR": folder, "TS_SOCKET": f"{folder}/socket", "TS_MAXFINISHED": str(count)}

        def tsp(*arguments: str) -> str:
            return subprocess.run(
                ["tsp", *arguments], env=env, check=True, capture_output=True
            ).stdout.decode()

        try:
            tsp("-S", str(slots))
            began = time.perf_counter()
            for _ in range(count):
                tsp("-n", "true")
            queued = time.perf_counter()
            while tsp().count("finished") < count:
                time.sleep(0.002)
            ended = time.perf_counter()
        finally:
            tsp("-K")
    return per_task(count, began, queued, ended)


def write_synced_files(count: int, threads: int) -> float:
    """Writes and syncs ``count`` files; returns milliseconds per file."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(threads) as pool:

        def write(number: int) -> None:
            fd = os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT)
            os.write(fd, b"x" * 500)
            os.fsync(fd)
            os.close(fd)

        began = time.perf_counter()
        list(pool.map(write, range(count)))
        return (time.perf_counter() - began) / count * 1e3


# --- idle -------------------------------------------------------------------------------------------------


def print_idle() -> None:
    with temporary_lab(cores=4), lab.open_queue() as store:
        daemon = lab.ensure_daemon().pid
        new_tasks.enqueue([new_task("sleep", "600")])
        wait_for(lambda: store.tasks()[0].state == RUNNING)
        record = PackageFolder.open(store.tasks()[0].package).sessions()[-1].record or {}
        guard, supervisor = int(record["guard_pid"]), int(record["pid"])
        watched = {"daemon": daemon, "guard": guard, "supervisor": supervisor}
        others = [pid for pid in children(daemon) if pid != guard]
        watched |= {f"template {pid}": pid for pid in others}
        time.sleep(2.0)
        rows = idle_rows(watched)
        store.request_stop(store.tasks()[0].id, "kill")
        lab.ensure_daemon()
        wait_for(lambda: have_ended(store))
    print(f"| idle for {IDLE_SECONDS:g} s | CPU ticks | RSS MB | PSS MB |\n|---|---|---|---|")
    print(*rows, "", sep="\n", flush=True)


def idle_rows(watched: dict[str, int]) -> list[str]:
    before = {name: ticks(pid) for name, pid in watched.items()}
    time.sleep(IDLE_SECONDS)
    return [
        f"| {name.split()[0]} | {ticks(pid) - before[name]} | {memory_mb(pid, 'Rss'):.1f} "
        f"| {memory_mb(pid, 'Pss'):.1f} |"
        for name, pid in watched.items()
    ]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ticks(pid: int, *, of_children: bool = False) -> int:
    """Returns the CPU time of a process; ``of_children``: with that of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if of_children else 13]))


def memory_mb(pid: int, field: str) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.split(f"\n{field}:")[1].split()[0]) / 1024


# --- a long queue -----------------------------------------------------------------------------------------


def print_long_queue(rows: int, rounds: int) -> None:
    with temporary_lab(cores=1), lab.open_queue() as store:
        daemon = lab.ensure_daemon().pid
        new_tasks.enqueue([new_task("sleep", "600")])
        wait_for(lambda: store.tasks()[0].state == RUNNING)
        one = new_task("true")
        store.submit([msgspec.structs.replace(one, id=new_id(time.time())) for _ in range(rows)])
        lab.ensure_daemon()
        wait_for(lambda: store.tasks(newest=1)[0].reason)
        listed = []
        for _ in range(rounds):
            began = time.perf_counter()
            subprocess.run([*ROOST, "tasks"], check=True, stdout=subprocess.DEVNULL)
            listed.append(time.perf_counter() - began)
        print_times(f"{rows} pending tasks", {"roost tasks": listed})
        lines = idle_rows({"daemon": daemon})
        size_mb = sum(path.stat().st_size for path in store.folder.glob("lab.db*")) / 2**20
        print(f"| idle for {IDLE_SECONDS:g} s | CPU ticks | RSS MB | PSS MB |\n|---|---|---|---|")
        print(*lines, f"\nsize of the queue: {size_mb:.1f} MB", sep="\n", flush=True)
        lab.stop()  # or it would start the pending tasks
        for task in store.tasks(states=[RUNNING]):
            session_control.request_stop(PackageFolder.open(task.package).sessions()[-1], now=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--slots", type=int, nargs="+", default=[2, 16])
    parser.add_argument("--rows", type=int, default=10000)
    parser.add_argument("--only", choices=("starts", "thousand", "idle", "rows"))
    arguments = parser.parse_args()
    if arguments.only in (None, "starts"):
        print_starts(arguments.rounds)
    if arguments.only in (None, "thousand"):
        print_throughput(arguments.tasks, arguments.slots)
    if arguments.only in (None, "idle"):
        print_idle()
    if arguments.only in (None, "rows"):
        print_long_queue(arguments.rows, arguments.rounds)
