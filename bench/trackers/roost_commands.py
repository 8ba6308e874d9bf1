"""roost: packages, and its commands as whole processes."""

from __future__ import annotations

import sys
from pathlib import Path

from trackers import runs

from roost.cli.__main__ import COMMANDS
from roost.package.package import PackageFolder
from roost.package.records import RecordsWriter

_RECORD = b'{"state": "succeeded", "exit_code": 0, "started": 1.0, "ended": 2.0, "seconds": 1.0}'


def fill(folder: Path, count: int, long_runs: int) -> None:
    """Creates the packages."""
    for number in range(count):
        package = PackageFolder.create(folder / "runs", name=runs.name(number), values=runs.settings(number))
        package.new_session({"kind": "train"})
        (package.path / "sessions" / "1.json").write_bytes(_RECORD)
        writer = RecordsWriter(package.path / "records" / "1.jsonl", session=1, start_step=0)
        for step, values in runs.rows(number, long_runs):
            writer.row(step, 0, values)
        writer.close()


def commands(folder: Path, count: int) -> dict[str, list[str]]:
    """Returns the command line of each question."""
    roost = str(Path(sys.executable).parent / "roost")
    root = str(folder / "runs")
    paths = [f"{root}/{runs.name(number)}" for number in range(min(count, 40))]  # the long ones first
    found = {
        "list": [roost, "ls", root, "--limit", "20"],
        "query": [roost, "ls", root, "lr=0.001", "--limit", "20"],
        "group": [roost, "ls", root, "--group-by", "lr"],
        "plot": [roost, "plot", *paths, "-m", "train/loss", "-o", str(folder / "plot.png")],
    }
    if "compare" in COMMANDS:
        found["compare"] = [roost, "compare", *paths[:10]]
    return found
