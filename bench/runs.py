"""The time of the commands that look at many runs, compared with MLflow, Aim and Trackio.

    python bench/runs.py [--runs 10000] [--long 100] [--rounds 9]
    python bench/runs.py --runs 1000 --long 0 --peers PYTHON

A run has 60 settings and 40 metrics in ten rows. ``--long`` runs have 100,000 rows and one more a million,
of two metrics, and of all 40 in every 1,000th row. Each question is a whole process, as one types it, or as
a script of a user asks it through the API of a peer, with the caches warm: the list of the newest 20, a
query by a setting, means of a metric over all runs grouped by a setting, settings and newest metrics of 10
runs, and one curve of 40 runs (roost draws it; the peers only read it). roost and the peers alternate;
figures are medians of wall clock.

``--peers`` is the interpreter of an environment into which `pip install mlflow-skinny sqlalchemy alembic
aim trackio` installed what it could. A peer that is missing is reported and left out. To write the runs
takes the peers longer than to read them: so much is printed, too.

Goal, warm, with 10,000 runs: list at most 0.1 s, group at most 0.2 s.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from trackers import roost_commands

PEERS = ("mlflow", "aim", "trackio")
SCRIPT = Path(__file__).parent / "trackers" / "peers.py"
QUESTIONS = ("list", "query", "group", "compare", "plot")
GOALS = {"list": 0.1, "group": 0.2}


class Failed(Exception):
    """A command failed; the text is the end of what it printed."""


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)[:200]}: {done.stderr[-2000:]}")
    return time.perf_counter() - began


def installed(python: str) -> list[str]:
    """Returns the peers that the interpreter has."""
    found = [
        one
        for one in PEERS
        if subprocess.run([python, "-c", f"import {one}"], capture_output=True).returncode == 0
    ]
    print(
        f"installed: {', '.join(found) or 'no peer'}; missing: {', '.join(set(PEERS) - set(found)) or 'none'}"
    )
    return found


def fill(name: str, write: Callable[[], object], count: int) -> None:
    began = time.perf_counter()
    write()
    print(f"{name}: wrote {count:,} runs in {time.perf_counter() - began:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--long", type=int, default=100, help="0: no long run")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--peers", metavar="PYTHON", help="the interpreter that has MLflow, Aim and Trackio")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder when left out")
    arguments = parser.parse_args()
    count, long_runs = arguments.runs, arguments.long
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        fill("roost", lambda: roost_commands.fill(folder, count, long_runs), count)
        expected = dict.fromkeys(QUESTIONS, count) | {"query": len(range(2, count, 4))}
        commands = {
            ("roost", question): command
            for question, command in roost_commands.commands(folder, count).items()
        }
        for peer in installed(arguments.peers) if arguments.peers else ():
            (folder / peer).mkdir()
            script = [arguments.peers, str(SCRIPT), peer, str(folder / peer)]
            fill(peer, lambda script=script: seconds([*script, "fill", str(count), str(long_runs)]), count)
            commands |= {(peer, one): [*script, "ask", one, str(expected[one])] for one in QUESTIONS}
        measure(commands, arguments.rounds)


def measure(commands: dict[tuple[str, str], list[str]], rounds: int) -> None:
    """Prints the table."""
    first: dict[tuple[str, str], float] = {}
    for (who, question), command in list(commands.items()):
        try:
            first[who, question] = seconds(command)  # builds the caches
        except Failed as error:
            if who == "roost":
                raise
            print(f"{who} cannot answer {question}: {str(error).strip().splitlines()[-1]}")
            del commands[who, question]
    times: dict[tuple[str, str], list[float]] = {key: [] for key in commands}
    for _ in range(rounds):
        for key, command in commands.items():
            times[key].append(seconds(command))
    medians = {key: statistics.median(values) for key, values in times.items()}
    print("\n| question | who | median s | min … max | first time | × roost |\n|---|---|---|---|---|---|")
    for who, question in sorted(commands, key=lambda key: QUESTIONS.index(key[1])):
        values = times[who, question]
        ratio = (
            medians[who, question] / medians["roost", question]
            if ("roost", question) in medians
            else float("nan")
        )
        spread = f"{min(values):.3f} … {max(values):.3f}"
        print(
            f"| {question} | {who} | {medians[who, question]:.3f} | {spread} | {first[who, question]:.2f} "
            f"| {ratio:.1f} |"
        )
    for question, goal in GOALS.items():
        found = medians["roost", question]
        print(f"goal, {question} ≤ {goal} s: {'met' if found <= goal else 'missed'}, {found:.3f} s")


if __name__ == "__main__":
    main()
