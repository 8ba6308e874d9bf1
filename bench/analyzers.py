"""Analyzers: the latency of a script on a loaded model, and the cost of much output.

    python bench/analyzers.py [--calls 50] [--lines 1000000]

- a call: from the request to the first statement of the script, and to its recorded end, requested by the
  operation (`run_script`), over HTTP by the Python client, and by the program `roost analyze TASK -s SCRIPT`;
  beside them `roost analyze PACKAGE -s SCRIPT`, which loads the package each time.
- output: a script that prints many lines, in an analyzer whose output a client follows and in one without,
  beside the same loop in plain Python that prints into a file, buffered as Python does by default; and the
  memory of the server before and after.

The package is one epoch of the digits template; the model runs on the CPU. Medians; wall clock. It prints
tables for docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from roost.analysis import analysis_folder
from roost.api import Client
from roost.base.system import state_folder
from roost.devices.resource_request import TaskOptions
from roost.operations import lab
from roost.operations.analyzers import script_call
from roost.operations.analyzers.call_results import ScriptCall
from roost.operations.analyzers.call_stream import follow_call
from roost.operations.analyzers.start_analyzer import AnalyzerRequest, start_analyzer
from roost.operations.lifecycle.new_project import new_project
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.queue import task_control
from roost.serve import server_control, server_presence

LATENCY = "import time\ndef experience(self): return time.time()\n"
PRINTS = """
import time
def experience(self):
    began = time.perf_counter()
    for number in range({lines}):
        print("line", number, "of the output")
    return time.perf_counter() - began
"""
PLAIN = """
import sys, time
began = time.perf_counter()
for number in range({lines}):
    print("line", number, "of the output")
sys.stdout.flush()
print(time.perf_counter() - began, file=sys.stderr)
"""


def make_package(folder: Path, lines: int) -> Path:
    """Returns a package of one epoch whose project has the scripts of this benchmark."""
    project = folder / "digits"
    new_project(project, template="digits")
    (project / "AnalyzeScripts" / "latency.py").write_text(LATENCY)
    (project / "AnalyzeScripts" / "prints.py").write_text(PRINTS.format(lines=lines))
    started = run(RunRequest(config=project / "config.yaml", overrides=["max_epochs=1"], device="cpu"))
    assert started.process is not None and started.process.wait() == 0
    return started.package


def wait(call: ScriptCall) -> float:
    """Waits for the end of a call; returns the value of its script."""
    *_, session = follow_call(call)
    assert not isinstance(session, bytes | str) and session.state == "succeeded", session
    return float(analysis_folder.read_result(Path(call.folder))["value"])


def latencies(ask: Callable[[], ScriptCall], calls: int) -> tuple[float, float, float]:
    """Returns the median and the 95th percentile of the milliseconds to the first statement, and the median
    to the recorded end."""
    first, whole = [], []
    for _ in range(calls):
        began = time.time()
        first.append((wait(ask()) - began) * 1000)
        whole.append((time.time() - began) * 1000)
    return statistics.median(first), statistics.quantiles(first, n=20)[-1], statistics.median(whole)


def program_latency(named: str, rounds: int) -> float:
    """Returns the median milliseconds from the start of the program to the first statement of the script."""
    found = []
    for _ in range(rounds):
        began = time.time()
        command = [sys.executable, "-m", "roost.cli", "analyze", named, "-s", "latency"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        out = done.stdout
        folder = next(Path(line) for line in out.splitlines() if line.endswith("result.json")).parent
        found.append((analysis_folder.read_result(folder)["value"] - began) * 1000)
    return statistics.median(found)


def memory_mb(pid: int) -> float:
    """Returns the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def show_output(task: str, client: Client, lines: int, folder: Path) -> None:
    """Measures a script that prints, and the server while its output is followed."""
    server = server_presence.find_running(state_folder.lab_folder())
    assert server is not None
    received = 0
    done = threading.Event()

    def follow() -> None:
        nonlocal received
        size = client.read_output(task).size
        for event in client.follow_output(task, cursor=str(size)):
            received += len(event.data.raw)
            if "succeeded" in event.data.text:
                done.set()
                return

    before = memory_mb(server.pid)
    plain = folder / "plain.txt"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    print("\n| lines | plain file | analyzer | followed | memory of the server | received |")
    print("|---|---|---|---|---|---|")
    for _ in range(2):
        with plain.open("wb") as to:
            script = PLAIN.format(lines=lines)
            ended = subprocess.run(
                [sys.executable, "-c", script], env=buffered, stdout=to, stderr=subprocess.PIPE, check=True
            )
        by_hand = float(ended.stderr)
        done.clear()
        reader = threading.Thread(target=follow, daemon=True)
        reader.start()
        followed = wait(script_call.run_script(task, "prints"))
        done.wait(300)
        alone = wait(script_call.run_script(task, "prints"))
        print(
            f"| {lines:,} | {by_hand:.2f} s | {alone:.2f} s ({alone / by_hand:.2f} ×) "
            f"| {followed:.2f} s ({followed / by_hand:.2f} ×) "
            f"| {before:.0f} to {memory_mb(server.pid):.0f} MB | {received / 2**20:.0f} MB |"
        )


def main(calls: int, lines: int) -> None:
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        folder = Path(home)
        os.environ |= {
            "ROOST_STATE": home + "/state",
            "ROOST_LEASES": home + "/leases",
            "ROOST_DEVICES": "sim:1x24GB",
        }
        package = make_package(folder, lines)
        os.chdir(folder)
        stack.callback(lab.stop)
        server_control.start(None)
        stack.callback(server_control.stop)
        client = stack.enter_context(Client())
        (task,) = start_analyzer(AnalyzerRequest(package=package, options=TaskOptions(gpus=0))).tasks
        stack.callback(task_control.request_stop, task.id)
        wait(script_call.run_script(task.id, "latency"))  # loads
        print("| script on a loaded model | first statement | 95 % within | recorded end |")
        print("|---|---|---|---|")
        for name, ask in (
            ("operation", lambda: script_call.run_script(task.id, "latency")),
            ("HTTP", lambda: client.run_script(task.id, "latency")),
        ):
            first, high, whole = latencies(ask, calls)
            print(f"| {name} | {first:.1f} ms | {high:.1f} ms | {whole:.1f} ms |")
        print(f"| `roost analyze TASK` | {program_latency(task.label, 5):.0f} ms | | |")
        print(
            f"| `roost analyze PACKAGE`, loaded each time | {program_latency(str(package), 3):.0f} ms | | |"
        )
        show_output(task.id, client, lines, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--lines", type=int, default=1_000_000)
    arguments = parser.parse_args()
    main(arguments.calls, arguments.lines)
