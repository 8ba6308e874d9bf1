"""What the lab costs: from the command to the process, from one task to the next, a thousand that do nothing.

    python bench/lab.py [--rounds 15] [--tasks 1000] [--slots 2 16] [--rows 10000] [--only thousand]

1. From `roost submit` to a process that runs (it makes a file), with a daemon and without one; from the call
   that queues a task whose package stands, to the same; beside a bare `subprocess`, and ``gbatch`` of gflow.
   And from the recorded end of a task to the start of the next process, in a queue with one slot.
2. ``--tasks`` times ``true``: packages made, all queued at once, and until all of them are recorded as
   succeeded, per task; so many at once as ``--slots`` says; and the processor time of the daemon, and of the
   template with all that comes from it, which tells on a busy machine, too. Beside task-spooler (``tsp``, if
   it is on the PATH), which never waits for the disk; gflow; a bare `subprocess`, one after the other; and
   one small file after the other that is written and synced, by one thread and by 16.
3. Memory of daemon, template, guard and supervisor, and the processor time of each while nothing happens.
4. With ``--rows`` tasks that wait: `roost tasks`, the daemon's memory and processor time, the queue's size.

gflow is beside where its programs are on the PATH (``pip install runqd`` into an environment of its own;
0.4.18), with its executor ``process``: the other one runs each task in a tmux session. It looks every ten
seconds who has ended, so two at once would take 5 seconds a task: it is given all of them at once.
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

from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import ENDED, RUNNING, SUCCEEDED, Task, new_id
from roost.lab.sessions import session_control
from roost.operations import lab
from roost.operations.queue import submit_command
from roost.operations.queue.resources import TaskOptions
from roost.package.package import PackageFolder

QUIET = subprocess.DEVNULL
ROOST = [str(Path(sys.executable).with_name("roost"))]
IDLE_SECONDS = 10.0


@contextmanager
def laboratory(**rules: Any) -> Iterator[Path]:
    """A lab of its own in a folder of its own, which is the current one inside; its daemon ends with it."""
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


def made(*command: str, begin: float | None = None) -> Task:
    return submit_command.create_command_task(command, TaskOptions(begin=begin))


def wait_for(there: Callable[[], object]) -> None:
    deadline = time.monotonic() + 600
    while not there():
        assert time.monotonic() < deadline, "it does not end"
        time.sleep(0.0005)


def have_ended(store: QueueStore) -> bool:
    unended = f"SELECT 1 FROM task WHERE state NOT IN ({', '.join('?' * len(ENDED))}) LIMIT 1"
    return store._connection.execute(unended, ENDED).fetchone() is None


@contextmanager
def gflow() -> Iterator[Callable[..., str] | None]:
    """Calls its programs, with a daemon and a home of their own; None where they are not installed."""
    if not shutil.which("gflowd"):
        yield None
        return
    with tempfile.TemporaryDirectory() as home, socket.create_server(("localhost", 0)) as taken:
        xdg = [
            f"XDG_{name}" for name in ("CONFIG_HOME", "DATA_HOME", "STATE_HOME", "CACHE_HOME", "RUNTIME_DIR")
        ]
        env = {**os.environ, **dict.fromkeys(["HOME", *xdg], home)}
        port = taken.getsockname()[1]
        taken.close()
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


def spread(title: str, rows: dict[str, list[float]]) -> None:
    print(f"| {title} | median ms | p95 | min … max |\n|---|---|---|---|")
    for name, found in rows.items():
        ms = sorted(value * 1e3 for value in found)
        p95 = ms[min(len(ms) - 1, round(0.95 * len(ms)))]
        print(f"| {name} | {statistics.median(ms):.1f} | {p95:.1f} | {ms[0]:.1f} … {ms[-1]:.1f} |")
    print(flush=True)


# --- one after the other ----------------------------------------------------------------------------------


def starts(rounds: int) -> None:
    kinds = ("bare subprocess", "queued, durable; daemon up", "submit; daemon up", "submit; no daemon")
    found: dict[str, list[float]] = {name: [] for name in kinds}
    with gflow() as peer, laboratory(cores=4) as folder, lab.open_queue() as store:
        for number in range(rounds + 1):
            for place, name in enumerate(kinds):
                path = folder / f"first-{number}-{place}"
                task = made("touch", str(path)) if name.startswith("queued") else None
                lab.stop() if name.endswith("no daemon") else lab.ensure_daemon()
                typed = ["touch", str(path)] if place == 0 else [*ROOST, "submit", "--", "touch", str(path)]
                began = time.perf_counter()
                child = subprocess.Popen(typed, stdout=QUIET, stderr=QUIET) if task is None else None
                if task is not None:
                    lab.enqueue([task])
                wait_for(path.exists)
                if number:  # the first of each reads its files from the disk
                    found[name].append(time.perf_counter() - began)
                if child is not None:
                    child.wait()
                wait_for(lambda: have_ended(store))
            if peer is not None:
                path, began = folder / f"first-{number}", time.perf_counter()
                peer("gbatch", "touch", str(path))
                wait_for(path.exists)
                if number:
                    found.setdefault("gbatch of gflow; daemon up", []).append(time.perf_counter() - began)
    found["end of a task → the next one runs"] = gaps(4 * rounds)
    spread("until the process runs", found)


def gaps(rounds: int) -> list[float]:
    with laboratory(cores=1), lab.open_queue() as store:
        lab.ensure_daemon()
        lab.enqueue([made("date", "+%s.%N") for _ in range(rounds + 1)])
        wait_for(lambda: have_ended(store))
        packages = [PackageFolder.open(task.package) for task in store.tasks()]
        begun = sorted(float(package.output.read_text()) for package in packages)
        ended = sorted((package.sessions()[-1].record or {})["ended"] for package in packages)
    return [after - before for before, after in zip(ended, begun[1:], strict=False)]


# --- a thousand -------------------------------------------------------------------------------------------


def thousand(count: int, slots: Sequence[int]) -> None:
    print(
        "| true, times each | at once | made | queued | run | all, ms per task "
        "| CPU ms of the daemon | of the rest |\n|---|---|---|---|---|---|---|---|"
    )
    for most in slots:
        with laboratory(cores=most), lab.open_queue() as store:
            daemon = lab.ensure_daemon().pid
            moments = [time.perf_counter()]
            tasks = [made("true") for _ in range(count)]
            before = spent_ms(daemon)
            moments.append(time.perf_counter())
            lab.enqueue(tasks)
            moments.append(time.perf_counter())
            wait_for(lambda store=store: have_ended(store))
            moments.append(time.perf_counter())
            spent = [(b - a) / count for a, b in zip(before, spent_ms(daemon), strict=True)]
            assert {task.state for task in store.tasks()} == {SUCCEEDED}
        parts = [(b - a) / count * 1e3 for a, b in pairwise(moments)]
        told = " | ".join(f"{part:.2f}" for part in (*parts, sum(parts), *spent))
        print(f"| roost, {count} | {most} | {told} |", flush=True)
        if shutil.which("tsp"):
            print(f"| tsp, {count} | {most} | | {spooled(count, most)} | | |", flush=True)
    if not shutil.which("tsp"):
        print("| tsp | is not installed | | | | | | |")
    with gflow() as peer:
        if peer is None:
            print("| gflow | is not installed | | | | | | |")
        else:
            print(f"| gflow, {count} | all | | {grouped(peer, count)} | | |", flush=True)
    began = time.perf_counter()
    for _ in range(count):
        subprocess.run(["true"], check=True)
    print(f"| subprocess, {count} | 1 | | | | {(time.perf_counter() - began) / count * 1e3:.2f} | | |")
    for threads in (1, 16):
        print(f"| a file that is synced, 320 | {threads} | | | | {synced(320, threads):.2f} | | |")
    print(flush=True)


def spent_ms(daemon: int) -> tuple[float, float]:
    """Of a daemon itself, and of those that it has started, with all of theirs that have ended."""
    ms = 1e3 / os.sysconf("SC_CLK_TCK")
    return ticks(daemon) * ms, sum(ticks(pid, of_children=True) for pid in children(daemon)) * ms


def grouped(call: Callable[..., str], count: int) -> str:
    """Cells of the table, of gflow: queued, run, all."""
    began = time.perf_counter()
    call("gbatch", "--array", f"1-{count}", "true")
    queued = time.perf_counter()

    def have_finished() -> bool:
        time.sleep(0.05)  # it answers in the time that it needs for its tasks
        jobs = json.loads(call("gqueue", "-a", "-o", "json"))["jobs"]
        assert not {"Failed", "Timeout", "Cancelled"} & {job["state"] for job in jobs}
        return [job["state"] for job in jobs] == ["Finished"] * count

    wait_for(have_finished)
    return per_task(count, began, queued, time.perf_counter())


def per_task(count: int, began: float, queued: float, ended: float) -> str:
    """Cells of the table: queued, run, all."""
    parts = (queued - began, ended - queued, ended - began)
    return " | ".join(f"{part / count * 1e3:.2f}" for part in parts)


def spooled(count: int, slots: int) -> str:
    """Cells of the table, of task-spooler: queued, run, all."""
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


def synced(count: int, threads: int) -> float:
    """Milliseconds for each file."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(threads) as pool:

        def write(number: int) -> None:
            fd = os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT)
            os.write(fd, b"x" * 500)
            os.fsync(fd)
            os.close(fd)

        began = time.perf_counter()
        list(pool.map(write, range(count)))
        return (time.perf_counter() - began) / count * 1e3


# --- while nothing happens --------------------------------------------------------------------------------


def idle() -> None:
    with laboratory(cores=4), lab.open_queue() as store:
        daemon = lab.ensure_daemon().pid
        lab.enqueue([made("sleep", "600")])
        wait_for(lambda: store.tasks()[0].state == RUNNING)
        record = PackageFolder.open(store.tasks()[0].package).sessions()[-1].record or {}
        guard, supervisor = int(record["guard_pid"]), int(record["pid"])
        watched = {"daemon": daemon, "guard": guard, "supervisor": supervisor}
        beside = [pid for pid in children(daemon) if pid != guard]
        watched |= {f"template {pid}": pid for pid in beside}
        time.sleep(2.0)
        told = costs(watched)
        store.request_stop(store.tasks()[0].id, "kill")
        lab.ensure_daemon()
        wait_for(lambda: have_ended(store))
    print(f"| idle for {IDLE_SECONDS:g} s | CPU ticks | RSS MB | PSS MB |\n|---|---|---|---|")
    print(*told, "", sep="\n", flush=True)


def costs(watched: dict[str, int]) -> list[str]:
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
    """Its processor time; with that of all its children that have ended, if that is asked for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if of_children else 13]))


def memory_mb(pid: int, field: str) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.split(f"\n{field}:")[1].split()[0]) / 1024


# --- a long queue -----------------------------------------------------------------------------------------


def long_queue(rows: int, rounds: int) -> None:
    with laboratory(cores=1), lab.open_queue() as store:
        daemon = lab.ensure_daemon().pid
        lab.enqueue([made("sleep", "600")])
        wait_for(lambda: store.tasks()[0].state == RUNNING)
        one = made("true")
        store.submit([msgspec.structs.replace(one, id=new_id(time.time())) for _ in range(rows)])
        lab.ensure_daemon()
        wait_for(lambda: store.tasks(newest=1)[0].reason)
        listed = []
        for _ in range(rounds):
            began = time.perf_counter()
            subprocess.run([*ROOST, "tasks"], check=True, stdout=subprocess.DEVNULL)
            listed.append(time.perf_counter() - began)
        spread(f"{rows} tasks wait", {"roost tasks": listed})
        told = costs({"daemon": daemon})
        size_mb = sum(path.stat().st_size for path in store.folder.glob("lab.db*")) / 2**20
        print(f"| idle for {IDLE_SECONDS:g} s | CPU ticks | RSS MB | PSS MB |\n|---|---|---|---|")
        print(*told, f"\nthe queue: {size_mb:.1f} MB", sep="\n", flush=True)
        lab.stop()  # else it would start what follows
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
    asked = parser.parse_args()
    if asked.only in (None, "starts"):
        starts(asked.rounds)
    if asked.only in (None, "thousand"):
        thousand(asked.tasks, asked.slots)
    if asked.only in (None, "idle"):
        idle()
    if asked.only in (None, "rows"):
        long_queue(asked.rows, asked.rounds)
