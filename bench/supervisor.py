"""What watching over a run costs.

    python bench/supervisor.py [--rounds 25] [--seconds 20]

1. Start: from the call of `start_session` to the recorded session with a running worker, and to the
   worker's first line, beside a bare `subprocess` of the same program. Medians, wall clock.
2. Memory of guard and supervisor: RSS of each (pages of the interpreter that they share with each other count
   twice) and PSS of both (shared pages count in parts; less still where other Python programs run).
3. Processor time of both, as a share of one core, over some seconds of: a worker that takes a step every 10
   ms and prints a line a second; the same with 8 child processes; one that prints nothing; one that prints
   as fast as it can into a file that may grow to 200 MB, where the time is that of the kernel giving back
   gigabytes of pages; and one that begins with that all at once, while the supervisor sleeps.
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


def until_first(folder: Path, began: float) -> float:
    while not (folder / "first").exists():
        time.sleep(0.0002)
    return time.perf_counter() - began


def starts(rounds: int) -> None:
    bare: list[float] = []
    running: list[float] = []
    first: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            began = time.perf_counter()
            with subprocess.Popen([sys.executable, "-I", "-S", "-c", FIRST], cwd=name) as child:
                bare.append(until_first(Path(name), began))
                child.kill()
        with tempfile.TemporaryDirectory() as name:
            began = time.perf_counter()
            started = run(Path(name), FIRST)
            running.append(time.perf_counter() - began)
            first.append(until_first(Path(name), began))
            end(started)
    print("| start | median ms | min … max |\n|---|---|---|")
    rows = {
        "bare subprocess: first line": bare,
        "supervised: worker running, recorded": running,
        "supervised: first line": first,
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


def wakes(pid: int) -> int:
    """How often a process went to sleep."""
    return int(Path(f"/proc/{pid}/status").read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])


def costs(seconds: float) -> None:
    cases = {
        "a step every 10 ms, a line a second": (STEPS, "0"),
        "the same, 8 child processes": (STEPS, "8"),
        "prints nothing": (IDLE,),
        "prints as fast as it can": (FLOOD,),
        "prints nothing for 4 s, then as fast as it can": (LATER + FLOOD,),
    }
    print(
        "| run | RSS MB, guard / supervisor | PSS MB, both "
        "| CPU, % of a core, guard / supervisor | the supervisor wakes, times a second "
        "| printed, GB | most MB on disk |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, (code, *arguments) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            started = run(Path(folder), code, *arguments)
            pids = started.process.pid, started.supervisor_pid
            time.sleep(1)
            before, woken = [cpu_seconds(pid) for pid in pids], wakes(pids[1])
            began, most = time.perf_counter(), 0
            while time.perf_counter() < began + seconds:
                most = max(most, (Path(folder) / "_output.txt").stat().st_blocks * 512)
                time.sleep(0.01)
            passed = time.perf_counter() - began
            shares = [(cpu_seconds(pid) - old) / passed * 100 for pid, old in zip(pids, before, strict=True)]
            woken = wakes(pids[1]) - woken
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
    asked = parser.parse_args()
    starts(asked.rounds)
    costs(asked.seconds)
