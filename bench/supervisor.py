"""The cost of supervising a run: start latency, memory, CPU time.

    python bench/supervisor.py [--rounds 25] [--seconds 20]

1. Start: from the call of `start_session` to the recorded session with a running worker, and to the worker's
   first statement, compared with a bare `subprocess` of the same program. Medians, wall clock.
2. Memory of guard and supervisor: RSS of each (pages of the interpreter that both share count twice) and PSS
   of both together (shared pages are divided among their processes; other Python programs make it smaller).
3. CPU time of both, as a share of one core, over ``--seconds`` of: a worker that takes a step every 10 ms and
   prints a line per second; the same with 8 child processes; a worker that prints nothing; a worker that
   prints as fast as it can into a file of at most 200 MB, where the time is spent in the kernel, which frees
   gigabytes of pages; and a worker that begins to do so suddenly, while the supervisor sleeps.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import roost
from roost.supervisor.guard_start import SupervisedSession, start_session
from roost.supervisor.session_spec import SessionSpec

SRC = str(Path(roost.__file__).parents[1])
FIRST = "import os; os.close(os.open('first', os.O_CREAT)); import signal; signal.pause()"
STEPS = f"""
import os, sys, time
sys.path.insert(0, {SRC!r})
from pathlib import Path
from roost.package.live_progress import ProgressFile
board = ProgressFile(Path("progress"))
for child in range(int(sys.argv[1])):
    if os.fork() == 0: time.sleep(10**6)
for step in range(10**9):
    board.publish(step, 0, 0, 1, 0, 0, 0, 0.0, 0.0, 0.0)
    if step % 100 == 0: print("step", step, flush=True)
    time.sleep(0.01)
"""
IDLE = "import signal; signal.pause()"
LATER = "import time; time.sleep(4)\n"
FLOOD = "import os\npiece = (b'x' * 99 + b'\\n') * 1000\nwhile True: os.write(1, piece)"


def run(folder: Path, code: str, *arguments: str) -> SupervisedSession:
    (folder / "sessions").mkdir()
    spec = SessionSpec(
        argv=[sys.executable, "-I", "-S", "-c", code, *arguments],
        cwd=str(folder),
        env=dict(os.environ),
        package=str(folder),
        session=1,
        output=str(folder / "_output.txt"),
        session_file=str(folder / "sessions" / "1.json"),
        token=secrets.token_hex(16),
        progress=str(folder / "progress"),
        stacks=str(folder / "stalls.txt"),
    )
    return start_session(spec, lock_fd=None)


def end(run: SupervisedSession) -> None:
    run.process.send_signal(signal.SIGQUIT)
    run.process.wait()


def seconds_to_first_statement(folder: Path, began: float) -> float:
    while not (folder / "first").exists():
        time.sleep(0.0002)
    return time.perf_counter() - began


def print_starts(rounds: int) -> None:
    bare: list[float] = []
    running: list[float] = []
    first: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            began = time.perf_counter()
            with subprocess.Popen([sys.executable, "-I", "-S", "-c", FIRST], cwd=name) as child:
                bare.append(seconds_to_first_statement(Path(name), began))
                child.kill()
        with tempfile.TemporaryDirectory() as name:
            began = time.perf_counter()
            started = run(Path(name), FIRST)
            running.append(time.perf_counter() - began)
            first.append(seconds_to_first_statement(Path(name), began))
            end(started)
    print("| start | median ms | min … max |\n|---|---|---|")
    rows = {
        "bare subprocess: first statement": bare,
        "supervised: worker running, recorded": running,
        "supervised: first statement": first,
    }
    for name, values in rows.items():
        spread = f"{min(values) * 1e3:.1f} … {max(values) * 1e3:.1f}"
        print(f"| {name} | {statistics.median(values) * 1e3:.1f} | {spread} |")
    print(flush=True)


def memory_mb(pid: int, field: str) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def context_switches(pid: int) -> int:
    """Returns the number of voluntary context switches of a process."""
    return int(Path(f"/proc/{pid}/status").read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])


def print_costs(seconds: float) -> None:
    cases = {
        "a step every 10 ms, a line per second": (STEPS, "0"),
        "the same, 8 child processes": (STEPS, "8"),
        "prints nothing": (IDLE,),
        "prints as fast as it can": (FLOOD,),
        "prints nothing for 4 s, then as fast as it can": (LATER + FLOOD,),
    }
    print(
        "| run | RSS MB, guard / supervisor | PSS MB, both "
        "| CPU, % of a core, guard / supervisor | wakes of the supervisor per second "
        "| printed, GB | peak MB on disk |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, (code, *arguments) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            started = run(Path(folder), code, *arguments)
            pids = started.process.pid, started.supervisor_pid
            time.sleep(1)
            before, woken = [cpu_seconds(pid) for pid in pids], context_switches(pids[1])
            began, most = time.perf_counter(), 0
            while time.perf_counter() < began + seconds:
                most = max(most, (Path(folder) / "_output.txt").stat().st_blocks * 512)
                time.sleep(0.01)
            passed = time.perf_counter() - began
            shares = [(cpu_seconds(pid) - old) / passed * 100 for pid, old in zip(pids, before, strict=True)]
            woken = context_switches(pids[1]) - woken
            printed = (Path(folder) / "_output.txt").stat().st_size
            rss = [memory_mb(pid, "Rss") for pid in pids]
            pss = sum(memory_mb(pid, "Pss") for pid in pids)
            end(started)
        print(
            f"| {name} | {rss[0]:.1f} / {rss[1]:.1f} | {pss:.1f} | {shares[0]:.2f} / {shares[1]:.2f} "
            f"| {woken / passed:.1f} | {printed / 1e9:.1f} | {most / 2**20:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    print_starts(arguments.rounds)
    print_costs(arguments.seconds)
