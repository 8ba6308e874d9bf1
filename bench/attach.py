"""Time until the output of a running session is shown, and the delay of each further line.

    python bench/attach.py [--rounds 15]

1. From the start of a command to its first byte, on a run in training: `roost attach` and `roost logs`,
   compared with `tail -n 10` and a bare `python -c pass` of the same interpreter.
2. From the moment at which the run prints a line to its arrival at `roost attach`.

Medians of whole processes, in turn; wall clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from roost.operations.lifecycle.new_project import new_project
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.lifecycle.stop import stop

HOOKS = """
import time, roost
class PrintTime(roost.Hook):
    phase, every = roost.Phase.REPORT, "20"
    def on_step(self, trainer):
        print("printed at", repr(time.time()), flush=True)
        time.sleep(0.02)
"""
ROOST = str(Path(sys.executable).parent / "roost")


def seconds_to_first_byte(command: list[str]) -> float:
    """Returns the seconds until the command has printed its first byte."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        assert child.stdout is not None
        os.read(child.stdout.fileno(), 1)
        took = time.perf_counter() - began
        child.kill()
    return took


def seconds_to_end(command: list[str]) -> float:
    """Returns the seconds until the command has ended."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def line_delays(package: Path, lines: int) -> list[float]:
    """Returns, for each of ``lines`` lines, the seconds between its print and its arrival."""
    delays = []
    with subprocess.Popen([ROOST, "attach", "-n", "0", str(package)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        while len(delays) < lines:
            for line in os.read(child.stdout.fileno(), 1 << 16).splitlines():
                if line.startswith(b"printed at ") and b"." in line:
                    delays.append(time.time() - float(line.split()[-1]))
        child.kill()
    return delays


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        new_project(project, template="clean")
        (project / "Hooks.py").write_text(HOOKS)
        overrides = ["max_epochs=1000000", "+hooks=[Hooks.py:PrintTime]"]
        started = run(RunRequest(config=project / "config.yaml", overrides=overrides))
        package = started.package
        while b"printed at" not in (package / "_output.txt").read_bytes():
            time.sleep(0.01)
        cases = {
            "python -c pass": lambda: seconds_to_end([sys.executable, "-c", "pass"]),
            "tail -n 10": lambda: seconds_to_first_byte(["tail", "-n", "10", str(package / "_output.txt")]),
            "roost logs -n 10": lambda: seconds_to_first_byte([ROOST, "logs", "-n", "10", str(package)]),
            "roost attach": lambda: seconds_to_first_byte([ROOST, "attach", str(package)]),
        }
        rows: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(rounds + 1):
            for name, case in cases.items():
                rows[name].append(case())
        rows = {name: values[1:] for name, values in rows.items()}
        delays = line_delays(package, 20 * rounds)
        for _ in stop(package, now=True):
            pass
        assert started.process is not None
        started.process.wait()
    base = statistics.median(rows["python -c pass"])
    print("| to the first byte | median ms | min … max | × |\n|---|---|---|---|")
    for name, values in rows.items():
        middle, spread = statistics.median(values), f"{min(values) * 1e3:.0f} … {max(values) * 1e3:.0f}"
        print(f"| {name} | {middle * 1e3:.0f} | {spread} | {middle / base:.1f} |")
    spread = f"{min(delays) * 1e3:.0f} … {max(delays) * 1e3:.0f}, {len(delays)} lines"
    print(f"\na line arrives {statistics.median(delays) * 1e3:.0f} ms after its print ({spread})")


if __name__ == "__main__":
    main()
