"""The start-up time of commands and runs, and the memory of the processes that make it short.

    python bench/startup.py [--rounds 15] [--packages 10000]

1. Commands: `roost --help`, and `roost ls` over many packages (with the search index, and the first time),
   compared with a bare `python -c pass` and a bare click program of the same interpreter.
2. A run, as a cold start (ROOST_COLD=1) and as a warm start (forked from the template process of the lab's
   daemon): from the call of `run` to the recorded session with a running worker, and to the first training
   step; and the same from the moment at which a task of the lab is queued, with its package created. Compared
   with `python train.py`, which takes one step of the same optimizer, to its end.
3. Memory of the template process, and of the processes of a session with a cold and with a warm start:
   private, shared and proportional (PSS), MB. The private memory of the template beside a cold worker is what
   the machine gets back when the template ends.

Medians of whole processes, in turn; wall clock.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roost.devices.resource_request import TaskOptions
from roost.lab.queue.task import ENDED
from roost.operations import lab
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.queue.submit import SubmitRequest, submit
from roost.package import live_progress
from roost.package.package import PackageFolder
from roost.package.records import RecordsWriter

CLICK = "import click\n@click.group()\ndef main(): pass\nmain(['--help'], standalone_mode=False)"
TRAIN_SCRIPT = """
import torch
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(8, 16)).mean().backward()
optimizer.step()
"""


def seconds(command: list[str], cwd: Path | None = None) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=cwd)
    return time.perf_counter() - began


def make_packages(root: Path, count: int) -> None:
    """Creates small finished packages: settings, one session, ten rows."""
    for number in range(count):
        package = PackageFolder.create(
            root, name=f"run-{number:05d}", values={"max_steps": 10, "seed": number}
        )
        package.new_session({"kind": "train"})
        record = b'{"state": "succeeded", "exit_code": 0, "started": 1.0, "ended": 2.0, "seconds": 1.0}'
        (package.path / "sessions" / "1.json").write_bytes(record)
        writer = RecordsWriter(package.path / "records" / "1.jsonl", session=1, start_step=0)
        for step in range(10):
            writer.row(step + 1, 0, {"train/loss": 1.0 / (step + 1), "valid/loss": 2.0 / (step + 1)})
        writer.close()


def table(rows: dict[str, list[float]], base: str) -> None:
    print("| measured | median ms | min … max | × |\n|---|---|---|---|")
    against = statistics.median(rows[base])
    for name, values in rows.items():
        middle = statistics.median(values)
        spread = f"{min(values) * 1e3:.0f} … {max(values) * 1e3:.0f}"
        print(f"| {name} | {middle * 1e3:.0f} | {spread} | {middle / against:.1f} |")
    print(flush=True)


def commands(rounds: int, count: int) -> None:
    roost = str(Path(sys.executable).parent / "roost")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        root = Path(folder) / "runs"
        began = time.perf_counter()
        make_packages(root, count)
        print(f"made {count} packages in {time.perf_counter() - began:.1f} s\n", file=sys.stderr)
        first = seconds([roost, "ls", str(root)])
        cases: dict[str, Callable[[], float]] = {
            "python -c pass": lambda: seconds([sys.executable, "-c", "pass"]),
            "a bare click program": lambda: seconds([sys.executable, "-c", CLICK]),
            "roost --help": lambda: seconds([roost, "--help"]),
            f"roost ls, {count} packages, indexed": lambda: seconds([roost, "ls", str(root)]),
        }
        rows: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(rounds):
            for name, case in cases.items():
                rows[name].append(case())
        rows[f"roost ls, {count} packages, first time"] = [first]
    table(rows, "python -c pass")


def first_step(package: Path) -> float:
    """Waits for the first step; returns its time in Unix seconds."""
    while True:
        progress = live_progress.read(package / "progress")
        if progress is not None and progress.step >= 1:
            return time.time()
        time.sleep(0.0005)


def session(package: Path, *, is_warm: bool) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((package / "sessions" / "1.json").read_bytes())
    assert found.get("warm", False) == is_warm, f"warm start: {not is_warm}, expected {is_warm}"
    return found


def measure_run(root: Path, project: Path, *, is_warm: bool) -> tuple[float, float]:
    """Starts a run; returns the seconds to the running worker, and to the first step."""
    began = time.time()
    overrides = [f"save_root={root}", "max_steps=1"]
    started = run(RunRequest(config=project / "config.yaml", overrides=overrides, device="cpu"))
    running, step = time.time(), first_step(started.package)
    assert started.process is not None and started.process.wait() == 0
    session(started.package, is_warm=is_warm)
    return running - began, step - began


def measure_task(root: Path, project: Path, *, is_warm: bool) -> tuple[float, float]:
    """Queues a task; returns the seconds from then to the running worker, and to the first step."""
    overrides = [f"save_root={root}", "max_steps=1"]
    [task] = submit(
        SubmitRequest(config=project / "config.yaml", overrides=overrides, options=TaskOptions(gpus=0))
    ).tasks
    step = first_step(Path(task.package))
    with lab.open_queue() as store:
        while store.task(task.id).state not in ENDED:
            time.sleep(0.01)
    started = session(Path(task.package), is_warm=is_warm)["started"]
    return started - task.submitted, step - task.submitted


def first_steps(rounds: int) -> None:
    project = Path(__file__).parents[1] / "src" / "roost" / "templates" / "clean"
    measures = {"run": measure_run, "queued": measure_task}
    rows: dict[str, list[float]] = {"python train.py": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"ROOST_STATE": name, "ROOST_LEASES": f"{name}/leases", "ROOST_DEVICES": "cpu"}
        (folder / "train.py").write_text(TRAIN_SCRIPT)
        os.environ["ROOST_COLD"] = ""
        try:
            for _ in range(2):  # at the second one the daemon starts a template process
                measure_task(folder, project, is_warm=False)
            while not any(not file.suffix for file in (folder / "lab" / "warm").glob("*")):
                time.sleep(0.1)
            for _ in range(rounds + 1):
                rows["python train.py"].append(seconds([sys.executable, str(folder / "train.py")]))
                for (kind, measure), is_warm in itertools.product(measures.items(), (False, True)):
                    os.environ["ROOST_COLD"] = "" if is_warm else "1"
                    running, step = measure(folder, project, is_warm=is_warm)
                    how = f"{kind}, {'warm' if is_warm else 'cold'}"
                    rows.setdefault(f"{how}: worker running", []).append(running)
                    rows.setdefault(f"{how}: first step", []).append(step)
            memory(folder, project)
        finally:
            lab.stop()
    table({name: values[1:] for name, values in rows.items()}, "python train.py")


def memory(root: Path, project: Path) -> None:
    """Prints the memory of the template process and of the processes of a session: beside a cold worker that
    shares the libraries' files with the template, then beside a warm one, which shares its imports, too."""
    daemon = lab.ensure_daemon().pid
    children = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
    [template] = [pid for pid in children if "libtorch" in Path(f"/proc/{pid}/maps").read_text()]
    print("| process | private MB | shared MB | PSS MB |\n|---|---|---|---|")
    for is_warm in (False, True):
        os.environ["ROOST_COLD"] = "" if is_warm else "1"
        overrides = [f"save_root={root}", "max_epochs=100000"]
        started = run(RunRequest(config=project / "config.yaml", overrides=overrides, device="cpu"))
        first_step(started.package)
        time.sleep(1)
        found = session(started.package, is_warm=is_warm)
        pids = {
            "template process": template,
            "guard": found["guard_pid"],
            "supervisor": found["pid"],
            "worker": found["worker_pid"],
        }
        for name, pid in pids.items():
            rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
            used = {row.split(":")[0]: int(row.split()[1]) / 1024 for row in rows}
            private = used["Private_Clean"] + used["Private_Dirty"]
            how = f"{name}, {'warm' if is_warm else 'cold'} start"
            print(f"| {how} | {private:.1f} | {used['Rss'] - private:.0f} | {used['Pss']:.0f} |")
        os.kill(found["pid"], signal.SIGQUIT)
        assert started.process is not None
        started.process.wait()
    print(flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--packages", type=int, default=10_000, help="0: measure only runs, no commands")
    arguments = parser.parse_args()
    if arguments.packages:
        commands(arguments.rounds, arguments.packages)
    first_steps(min(arguments.rounds, 7))
