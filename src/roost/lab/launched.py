"""The ranks that a launcher such as torchrun has started: each tells of itself in the pipe of the reports."""

from __future__ import annotations

import json


def pids(report: bytes) -> list[int]:
    """Their pids, in the order in which they came up; the pipe is open to all of their code."""
    found = []
    for line in report.splitlines():
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and isinstance(pid := said.get("launched"), int):
            found.append(pid)
    return found
