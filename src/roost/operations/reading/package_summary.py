"""One package in one row: what `ls` lists."""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roost.base.errors import CheckpointError, NotFound
from roost.base.system.worker_protocol import EARLY_STOP, TIME_LIMIT
from roost.lab.queue import task_file
from roost.lab.queue.task import ENDED
from roost.operations.reading import package_schema
from roost.operations.reading.package_row import PackageSummary
from roost.operations.reading.package_schema import DamagedPackage
from roost.package import lineage, live_progress, records
from roost.package.checkpoints import checkpoint
from roost.package.sessions import Session


def summarize(path: Path) -> PackageSummary:
    """The row of one package, from a few small reads whatever the length of the run. That of a damaged one
    has the state "damaged", and the cause as its error.

    Raises:
        NotFound: The folder is no package.
    """
    if not (path / "request.json").exists() or not (path / "sessions").is_dir():
        raise NotFound("the folder is no package", received=str(path))
    try:
        return _summarize_checked(path)
    except DamagedPackage as damage:
        return PackageSummary(
            name=package_schema.printable(path.name), state="damaged", error=f"{damage.name}: {damage.cause}"
        )


def _summarize_checked(path: Path) -> PackageSummary:
    request = package_schema.load(path, "request.json")
    found = package_schema.sessions(path)
    seen = live_progress.read(path / "progress")
    rule = _best_rule(path)
    metric, last = _newest_metric(path, found, rule.get("monitor"))
    ended = found[-1] if found else None
    tickets = task_file.read_all(path)
    parent = next(iter(lineage.ancestry_of_request(request)), None)
    return PackageSummary(
        name=package_schema.printable(path.name),
        state=ended.state if ended else _state_before_sessions(tickets),
        step=seen.step if seen else None,
        total_steps=(seen.total_steps or None) if seen else None,
        epoch=seen.epoch if seen else None,
        metric=metric,
        last=last,
        best=_best_value(path, rule),
        started=_started(found[0]) if found else None,
        seconds=sum(_seconds(session, seen) for session in found) if found else None,
        sessions=len(found),
        error=ended.error if ended and ended.state in ("failed", "crashed") else None,
        reason=_reason(ended) if ended else None,
        description=request.get("description"),
        parent=parent.package if parent is not None else None,
        parent_step=parent.step if parent is not None else None,
        group=_group(path, tickets),
    )


def _reason(ended: Session) -> str | None:
    reason = (ended.record or {}).get("reason")
    return reason if ended.state in ("succeeded", "stopped") and reason in (EARLY_STOP, TIME_LIMIT) else None


def _state_before_sessions(tickets: Sequence[task_file.StoredTask]) -> str:
    """A task may end before its first session, when somebody stops it while it waits."""
    states = [one.task.state for one in tickets]
    return states[-1] if states and all(state in ENDED for state in states) else "new"


def _group(path: Path, tickets: Sequence[task_file.StoredTask]) -> str | None:
    sweeps = [one.task.sweep for one in tickets if one.task.sweep is not None]
    if not sweeps:
        return None
    values = {name: value for name, value in package_schema.load(path, "args.json").items() if name != "seed"}
    return f"{sweeps[-1]}-{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def _started(session: Session) -> float | None:
    return (session.record or {}).get("started")


def _seconds(session: Session, seen: live_progress.ProgressRecord | None) -> float:
    record = session.record or {}
    seconds, started = record.get("seconds"), record.get("started")
    if seconds is not None or started is None:
        return float(seconds or 0.0)
    if session.state == "running":
        return max(0.0, time.time() - float(started))
    # It crashed without a record of its end: the last sign of life is the nearest to it that is known.
    return max(0.0, seen.wall - float(started)) if seen else 0.0


def _best_rule(path: Path) -> dict[str, Any]:
    section = package_schema.load(path, "args.json").get("checkpoint")
    rules = section.get("best") if isinstance(section, dict) else None
    first = rules[0] if isinstance(rules, list) and rules else None
    return first if isinstance(first, dict) and isinstance(first.get("monitor"), str) else {}


def _best_value(path: Path, rule: dict[str, Any]) -> float | None:
    monitor = str(rule.get("monitor"))
    found = []
    for id in package_schema.load(path, "_package.json").get("ckpt_best", []):
        try:
            info = checkpoint.read_manifest(checkpoint.checkpoint_folder(path / "Checkpoints", id))
        except (CheckpointError, NotFound, FileNotFoundError):  # removed by its run just now
            continue
        value = info.metrics.get(monitor)
        if value is not None and math.isfinite(value):
            found.append(value)
    return (min(found) if rule.get("mode") == "min" else max(found)) if found else None


def _newest_metric(path: Path, found: list[Session], monitor: str | None) -> tuple[str | None, float | None]:
    """The metric to show and its newest value, from the last pieces of the newest records."""
    newest: dict[str, float] = {}
    for number in [*(session.number for session in reversed(found)), lineage.INHERITED_SESSION]:
        for row in reversed(records.read_tail(path / "records" / f"{number}.jsonl")):
            newest = {**records.metrics(row), **newest}
            if monitor in newest or (monitor is None and "valid/loss" in newest):
                break
        if newest:
            break
    valid = [name for name in newest if name.startswith("valid/")]
    names = [monitor, "valid/loss", *valid, "train/loss", *newest]
    name = next((name for name in names if name in newest), monitor)
    return name, newest.get(name) if name is not None else None
