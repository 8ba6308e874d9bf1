"""The cost of running a program as a run: its start, its calls of loggers, and the copy of its code.

    python bench/scripts.py [--rounds 7] [--calls 2000] [--files 500] [--folder DIR]

- start: `roost run -- python -c pass` beside `python -c pass`; and of the first, the time until the program
  itself runs.
- calls: `wandb.log` of 3 numbers, offline, in a program whose calls are reported, beside one without.
- packaging: the package of a folder of small files, beside `cp -r` of the folder and `cp -r` with a sync.

Each round runs all methods in turn; figures are medians over rounds, and their ratios.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from roost.operations.programs.program_package import TypedProgram, prepare_program
from roost.worker.programs import import_hooks

HOOKS = str(Path(import_hooks.__file__).parent)
CALLS = """
import sys, time, wandb
run = wandb.init(mode="offline", settings=wandb.Settings(console="off", silent=True))
count = int(sys.argv[1])
begin = time.perf_counter()
for step in range(count):
    run.log({"loss": 0.5, "accuracy": 0.75, "lr": 1e-3})
print((time.perf_counter() - begin) / count)
run.finish()
"""


def run(command: list[str], folder: Path, **environment: str) -> str:
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ).stdout  # fmt: skip


def seconds_of(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def starts(folder: Path) -> dict[str, float]:
    says = "import time; print(time.time())"
    begin = time.time()
    output = run([sys.executable, "-m", "roost", "run", "-CPU", "--", sys.executable, "-c", says], folder)
    began = next(float(line) for line in output.splitlines() if line.replace(".", "").isdecimal())
    return {
        "python": seconds_of(lambda: run([sys.executable, "-c", "pass"], folder)),
        "python -m roost ls": seconds_of(lambda: run([sys.executable, "-m", "roost", "ls"], folder)),
        "roost run -- python, until the program runs": began - begin,
        "roost run -- python, until it has ended": seconds_of(
            lambda: run([sys.executable, "-m", "roost", "run", "-CPU", "--", "true"], folder)
        ),
    }


def calls(folder: Path, count: int) -> dict[str, float]:
    (folder / "calls.py").write_text(CALLS)
    command = [sys.executable, "calls.py", str(count)]
    reported = {"PYTHONPATH": HOOKS, "ROOST_CALLS": str(folder / "reported")}
    return {
        "wandb.log": float(run(command, folder).splitlines()[-1]),
        "wandb.log, reported": float(run(command, folder, **reported).splitlines()[-1]),
    }


def copies(folder: Path, files: int) -> dict[str, float]:
    code, root = folder / "code", folder / "packages"
    if not code.exists():
        code.mkdir()
        for number in range(files):
            (code / f"{number}.py").write_bytes(os.urandom(4096))

    def package() -> None:
        with prepare_program(TypedProgram(command=["true"], folder=code, root=root)) as draft:
            draft.create()

    def copied() -> None:
        run(["cp", "-r", str(code), str(folder / "copy")], folder)

    found = {"cp -r": seconds_of(copied), "roost's package": seconds_of(package)}
    for made in (root, folder / "copy"):
        shutil.rmtree(made)
    found["cp -r and sync"] = seconds_of(lambda: (copied(), os.sync()))
    shutil.rmtree(folder / "copy")
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as made:
        folder = Path(made)
        os.environ |= {"ROOST_STATE": str(folder / "state"), "ROOST_LEASES": str(folder / "leases")}
        parts: dict[str, Callable[[], dict[str, float]]] = {
            "start": lambda: starts(folder),
            "calls": lambda: calls(folder, asked.calls),
            f"packaging of {asked.files} files of 4 KB": lambda: copies(folder, asked.files),
        }
        for title, measure in parts.items():
            rounds = [measure() for _ in range(asked.rounds)]
            print(title)
            medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
            first = next(iter(medians.values()))
            for name, value in medians.items():
                print(f"  {name:<46} {value * 1e3:9.3f} ms  {value / first:7.2f}x")


if __name__ == "__main__":
    main()
