"""How long a person waits to see a run that goes on by itself, and how late its output then comes.

    python bench/attach.py [--rounds 15]

1. From the start of the command to its first byte, on a run in training: `roost attach`, `roost logs`, beside
   `tail -n 10` and bare `python -c pass` of the same interpreter.
2. From a line's print in the run to its arrival at whoever is attached.

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
class Tell(roost.Hook):
    phase, every = roost.Phase.REPORT, "20"
    def on_step(self, trainer):
        print("told at", repr(time.time()), flush=True)
        time.sleep(0.02)
"""
ROOST = str(Path(sys.executable).parent / "roost")


def first_byte(command: list[str]) -> float:
    """Seconds until the command has printed anything."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        assert child.stdout is not None
        os.read(child.stdout.fileno(), 1)
        took = time.perf_counter() - began
        child.kill()
    return took


def whole(command: list[str]) -> float:
    """Seconds until the command has ended."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def lateness(package: Path, lines: int) -> list[float]:
    """Seconds between a line's print and its arrival."""
    found = []
    with subprocess.Popen([ROOST, "attach", "-n", "0", str(package)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        while len(found) < lines:
            for line in os.read(child.stdout.fileno(), 1 << 16).splitlines():
                if line.startswith(b"told at ") and b"." in line:
                    found.append(time.time() - float(line.split()[-1]))
        child.kill()
    return found


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
        overrides = ["max_epochs=1000000", "+hooks=[Hooks.py:Tell]"]
        started = run(RunRequest(config=project / "config.yaml", overrides=overrides))
        package = started.package
        while b"told at" not in (package / "_output.txt").read_bytes():
            time.sleep(0.01)
        cases = {
            "python -c pass": lambda: whole([sys.executable, "-c", "pass"]),
            "tail -n 10": lambda: first_byte(["tail", "-n", "10", str(package / "_output.txt")]),
            "roost logs -n 10": lambda: first_byte([ROOST, "logs", "-n", "10", str(package)]),
            "roost attach": lambda: first_byte([ROOST, "attach", str(package)]),
        }
        rows: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(rounds + 1):
            for name, case in cases.items():
                rows[name].append(case())
        rows = {name: values[1:] for name, values in rows.items()}
        late = lateness(package, 20 * rounds)
        for _ in stop(package, now=True):
            pass
        assert started.process is not None
        started.process.wait()
    base = statistics.median(rows["python -c pass"])
    print("| to the first byte | median ms | min … max | × |\n|---|---|---|---|")
    for name, values in rows.items():
        middle, spread = statistics.median(values), f"{min(values) * 1e3:.0f} … {max(values) * 1e3:.0f}"
        print(f"| {name} | {middle * 1e3:.0f} | {spread} | {middle / base:.1f} |")
    spread = f"{min(late) * 1e3:.0f} … {max(late) * 1e3:.0f}, {len(late)} lines"
    print(f"\na line arrives {statistics.median(late) * 1e3:.0f} ms after its print ({spread})")


if __name__ == "__main__":
    main()
