"""Tasks and cards for the tests of the queue."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.devices.card import Card
from roost.lab.queue.task import PENDING, Task, new_id

PLAN = {"argv": ["python", "-m", "roost.worker"], "env": {"PATH": "/bin", "BROKEN": "\udcff"}}
TOLD = {"argv": PLAN["argv"]}
"""What a package tells of it: never the environment."""
SECRET = {**PLAN, "env": {"TOKEN": random.Random(0).randbytes(3000).hex()}}
"""With an environment that is larger than a page of the queue."""
_numbers = itertools.count(1)


def card(number: int = 0, total_mb: int = 24_000) -> Card:
    return Card(number, f"GPU-{number}", "test", total_mb, total_mb)


def alike(card_mb: int) -> tuple[int, int]:
    """All cards are like this one, and tasks may have all of it."""
    return card_mb, card_mb


def task(**given: Any) -> Task:
    """A new one; its package is a folder that is not there."""
    now, number = time.time(), next(_numbers)
    usual = {"id": new_id(now), "name": f"n{number}", "package": f"/nowhere/n{number}", "user": "ada"}
    return Task(**{**usual, "state": PENDING, "submitted": now, "plan": PLAN, **given})


def package(path: Path) -> Path:
    """As much of one as the queue looks at."""
    durable.make_folders(path / "sessions")
    for name in ("request.json", "args.json"):
        (path / name).write_text("{}\n")
    return path


def stands_in(folder: Path, column: bytes) -> bool:
    """Whether a piece of it, as of a column of the queue, stands in any file there."""
    pieces = [column[at : at + 24] for at in range(100, len(column) - 24, 24)]
    files = [path.read_bytes() for path in folder.iterdir() if path.is_file()]
    return any(piece in file for file in files for piece in pieces)
