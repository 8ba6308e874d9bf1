"""One package in one row: what `ls` lists."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from roost.base import regular
from roost.base.errors import CheckpointError, NotFound
from roost.operations.row import Row
from roost.package import checkpoint, progress, sessions
from roost.package.sessions import Session

_TAIL_BYTES = 1 << 16
_UNKNOWN_TOTAL = 2**61
_NOT_METRICS = frozenset(["step", "epoch", "time", "nonfinite", "session", "start_step"])


def summarize(path: Path) -> Row:
    """The row of one package, from a few small reads whatever the length of the run.

    Raises:
        NotFound: The folder is no package.
    """
    request = _json(path / "request.json")
    if request is None or not (path / "sessions").is_dir():
        raise NotFound("the folder is no package", received=str(path))
    found = sessions.read_all(path / "sessions")
    seen = progress.read(path / "progress")
    rule = _best_rule(path)
    metric, last = _newest_value(path, found, rule.get("monitor"))
    ended = found[-1] if found else None
    return Row(
        name=path.name,
        state=ended.state if ended else "new",
        step=seen.step if seen else None,
        total_steps=seen.total_steps if seen and 0 < seen.total_steps < _UNKNOWN_TOTAL else None,
        epoch=seen.epoch if seen else None,
        metric=metric,
        last=last,
        best=_best_value(path, rule),
        started=_started(found[0]) if found else None,
        seconds=sum(_seconds(session, seen) for session in found) if found else None,
        sessions=len(found),
        error=ended.error if ended and ended.state in ("failed", "crashed") else None,
        description=request.get("description"),
    )


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(regular.read(path))
    except (OSError, msgspec.DecodeError):
        return None
    return found if isinstance(found, dict) else None


def _started(session: Session) -> float | None:
    return (session.record or {}).get("started")


def _seconds(session: Session, seen: progress.Snapshot | None) -> float:
    record = session.record or {}
    if "seconds" in record or "started" not in record:
        return float(record.get("seconds", 0.0))
    if session.state == "running":
        return time.time() - float(record["started"])
    # It crashed without a record of its end: the last sign of life is the nearest to it that is known.
    return max(0.0, seen.wall - float(record["started"])) if seen else 0.0


def _best_rule(path: Path) -> dict[str, Any]:
    section = (_json(path / "args.json") or {}).get("checkpoint")
    rules = section.get("best") if isinstance(section, dict) else None
    first = rules[0] if isinstance(rules, list) and rules else None
    return first if isinstance(first, dict) else {}


def _best_value(path: Path, rule: dict[str, Any]) -> float | None:
    monitor = str(rule.get("monitor"))
    found = []
    for id in (_json(path / "_package.json") or {}).get("ckpt_best", []):
        try:
            info = checkpoint.read_info(checkpoint.folder_of(path / "Checkpoints", int(id)))
        except (CheckpointError, NotFound):
            continue
        value = info.metrics.get(monitor)
        if value is not None and math.isfinite(value):
            found.append(value)
    return (min(found) if rule.get("mode") == "min" else max(found)) if found else None


def _newest_value(path: Path, found: list[Session], monitor: str | None) -> tuple[str | None, float | None]:
    """The metric to show and its newest value, from the last pieces of the newest records."""
    newest: dict[str, float] = {}
    for session in reversed(found):
        for row in reversed(_tail(path / "records" / f"{session.number}.jsonl")):
            newest = {**_metrics(row), **newest}
            if monitor in newest or (monitor is None and "valid/loss" in newest):
                break
        if newest:
            break
    valid = [name for name in newest if name.startswith("valid/")]
    names = [monitor, "valid/loss", *valid, "train/loss", *newest]
    name = next((name for name in names if name in newest), monitor)
    return name, newest.get(name) if name is not None else None


def _metrics(row: dict[str, Any]) -> dict[str, float]:
    return {
        name: float(row.get("nonfinite", {}).get(name, "nan")) if value is None else float(value)
        for name, value in row.items()
        if name not in _NOT_METRICS
    }


def _tail(path: Path) -> list[dict[str, Any]]:
    """The last rows of a records file, oldest first."""
    try:
        fd = regular.open_fd(path)
    except OSError:
        return []
    try:
        size = os.fstat(fd).st_size
        data = os.pread(fd, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    finally:
        os.close(fd)
    lines = data.split(b"\n")[1 if size > _TAIL_BYTES else 0 :]
    return [row for row in map(_decoded, lines) if row is not None]


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        row = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return row if isinstance(row, dict) and "start_step" not in row else None
