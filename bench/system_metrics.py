"""The cost of the metrics of cards, host and processes.

    python bench/system_metrics.py [--seconds 60] [--cards sim:8x80GB]

Sessions whose workers take a step every 10 ms, without and with these metrics: the CPU time of one supervisor
(the mean of all that do not sample), of the one that samples the machine, and of the process that asks the
cards, each as a share of one core. Then the size of the file of a week, and what merging costs the supervisor
at once.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import roost
from roost.devices import lease_files
from roost.devices.sampling import sample_ring
from roost.package.results import system_metrics
from roost.package.results.system_metrics import SystemRow
from roost.supervisor.guard_start import SupervisedSession, start_session
from roost.supervisor.monitoring.system_file import SystemFile
from roost.supervisor.session_spec import SessionSpec

SRC = str(Path(roost.__file__).parents[1])
STEPS = f"""
import sys, time
sys.path.insert(0, {SRC!r})
from pathlib import Path
from roost.package.live_progress import ProgressFile
board = ProgressFile(Path("progress"))
for step in range(10**9):
    board.publish(step, 0, 0, 1, 0, 0, 0, 0.0, 0.0, 0.0)
    time.sleep(0.01)
"""


def start(folder: Path, samples: str, cards: Sequence[str], *, measures: bool) -> SupervisedSession:
    (folder / "sessions").mkdir(parents=True)
    spec = SessionSpec(
        argv=[sys.executable, "-I", "-S", "-c", STEPS],
        cwd=str(folder),
        env=dict(os.environ),
        package=str(folder),
        session=1,
        output=str(folder / "_output.txt"),
        session_file=str(folder / "sessions" / "1.json"),
        token=secrets.token_hex(16),
        progress=str(folder / "progress"),
        system=str(folder / "system" / "1.jsonl") if measures else "",
        samples=samples,
        card_ids=tuple(cards),
    )
    return start_session(spec, lock_fd=None)


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process, by the scheduler's clock: the ticks of /proc/PID/stat are 10 ms."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def asker_of(pid: int) -> int | None:
    """Returns the child that asks the cards."""
    for child in children(pid):
        if b"card_process" in Path(f"/proc/{child}/cmdline").read_bytes():
            return child
    return None


def print_costs(num_sessions: int, seconds: float, *, measures: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        os.environ[lease_files.VARIABLE] = f"{name}/leases"
        samples = lease_files.make_samples_folder()
        cards = ["SIM-0", "SIM-1"]
        running = [start(Path(name) / str(n), samples, cards, measures=measures) for n in range(num_sessions)]
        time.sleep(12)
        pids = [one.supervisor_pid for one in running]
        ring = sample_ring.newest_ring(samples)
        sampler = ring.header.pid if ring is not None else None
        asker = asker_of(sampler) if sampler is not None else None
        watched = [*pids, *([asker] if asker is not None else [])]
        before = {pid: cpu_seconds(pid) for pid in watched}
        began = time.perf_counter()
        time.sleep(seconds)
        passed = time.perf_counter() - began
        shares = {pid: (cpu_seconds(pid) - before[pid]) / passed * 100 for pid in watched}
        others = [shares[pid] for pid in pids if pid != sampler]
        mean = f"{sum(others) / len(others):.3f}" if others else ""
        most = f"{max(others):.3f}" if others else ""
        of_sampler = f"{shares[sampler]:.3f}" if sampler is not None else ""
        of_asker = f"{shares[asker]:.3f}" if asker is not None else ""
        what = "with" if measures else "without"
        print(f"| {num_sessions} | {what} | {mean} | {most} | {of_sampler} | {of_asker} |", flush=True)
        for one in running:
            one.process.send_signal(signal.SIGQUIT)
        for one in running:
            one.process.wait()


def print_week(num_cards: int) -> None:
    names = system_metrics.column_names(num_cards)
    values = [100.0 * n / len(names) + 0.123 for n in range(len(names))]
    longest = 0.0
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "system" / "1.jsonl"
        file = SystemFile(path, names)
        began = time.process_time()
        largest = 0
        for second in range(604_800):
            file.add(SystemRow(1.8e9 + second, 1.0, values, values))
            if second % 5 == 0:
                before = time.process_time()
                file.work(float(second))
                longest = max(longest, time.process_time() - before)
            if second % 1000 == 0:
                largest = max(largest, path.stat().st_size)
        file.finish()
        spent = time.process_time() - began
        size, rows = path.stat().st_size / 2**20, len(path.read_bytes().splitlines())
        print(
            f"| {num_cards} | {size:.1f} | {largest / 2**20:.1f} | {rows} | {file.row_seconds:g} "
            f"| {longest * 1e3:.0f} | {spent / 604_800 * 100:.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--cards", default="sim:8x80GB")
    arguments = parser.parse_args()
    os.environ["ROOST_DEVICES"] = arguments.cards
    print("CPU, % of a core\n")
    print("| sessions | metrics | a supervisor, mean | most | the one that samples | asks the cards |")
    print("|---|---|---|---|---|---|")
    for count, measures in ((2, False), (2, True), (20, False), (20, True)):
        print_costs(count, arguments.seconds, measures=measures)
    print("\nA week\n")
    print("| cards | MB | most | lines | seconds of a row | most ms at once | CPU, % of a core |")
    print("|---|---|---|---|---|---|---|")
    for number in (0, 1, 8):
        print_week(number)
