"""Summarizes a package for `roost ls`."""

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
from roost.lab.queue.task import ENDED, Task
from roost.operations.listing.package_row import FOREIGN, PackageSummary
from roost.operations.reading import package_schema
from roost.operations.reading.package_schema import DamagedPackage
from roost.package import labels, lineage, live_progress, records
from roost.package.checkpoints import checkpoint
from roost.package.dlnest import original_folder
from roost.package.package import PackageFolder
from roost.package.remote import remote_status
from roost.package.sessions import Session


def summarize(path: Path) -> PackageSummary:
    """Summarizes a package, in a few small reads whatever the length of the run. A damaged package has the
    state "damaged", and the damage as its error.

    Raises:
        NotFound: The folder is not a package.
    """
    if original_folder.is_original(path):
        return _summarize_original(path)
    if not (path / "request.json").exists():
        raise NotFound("the folder is not a package", received=str(path))
    try:
        return _summarize_checked(path)
    except DamagedPackage as damage:
        return PackageSummary(
            name=package_schema.printable(path.name), state="damaged", error=f"{damage.name}: {damage.cause}"
        )


def _summarize_original(path: Path) -> PackageSummary:
    marker = next(iter(sorted(one.name for one in path.glob("_desc: *"))), None)
    about = [marker.removeprefix("_desc: ")] if marker else []
    return PackageSummary(
        name=package_schema.printable(path.name),
        state=FOREIGN,
        description=package_schema.printable("; ".join(["of DLNest, read only", *about])),
    )


def _summarize_checked(path: Path) -> PackageSummary:
    request = package_schema.load(path, "request.json")
    found = package_schema.sessions(path)
    progress = live_progress.read(path / "progress")
    rule = _best_rule(path)
    metric, last = _newest_metric(path, found, rule.get("monitor"))
    step, epoch = _position(path, found, progress)
    latest = found[-1] if found else None
    stored_tasks = task_file.read_all(path)
    parent = next(iter(lineage.ancestry_of_request(request)), None)
    given = labels.read(path)
    sweep = _newest_of_sweep(stored_tasks)
    system = _system(request)
    has_times = bool(found) and (system is None or found[0].recorded.seconds is not None)
    return PackageSummary(
        name=package_schema.printable(path.name),
        state=latest.state_shown if latest else _state_before_sessions(stored_tasks),
        step=step,
        total_steps=(progress.total_steps or None) if progress else None,
        epoch=epoch,
        metric=metric,
        last=last,
        best=_best_value(path, rule) if metric == rule.get("monitor") else None,
        started=found[0].recorded.started if found else None,
        seconds=sum(_seconds(session, progress) for session in found) if has_times else None,
        sessions=len(found),
        error=(latest.error if latest and latest.state in ("failed", "crashed") else None)
        or (package_schema.records_damage(PackageFolder(path)) if found else None),
        reason=_reason(latest) if latest else None,
        description=request.get("description"),
        parent=parent.package if parent is not None else None,
        parent_step=parent.step if parent is not None else None,
        task=stored_tasks[-1].task.id if stored_tasks else None,
        sweep=sweep.sweep if sweep is not None else None,
        sweep_name=sweep.sweep_name if sweep is not None else None,
        group=_group(path, sweep.sweep) if sweep is not None and sweep.sweep is not None else None,
        tags=given.tags,
        note=given.note,
        starred=given.starred,
        **_durability(path),
        system=system,
    )


def _system(request: dict[str, Any]) -> str | None:
    imported = request.get("imported")
    system = imported.get("system") if isinstance(imported, dict) else None
    return package_schema.printable(system) if isinstance(system, str) else None


def _durability(path: Path) -> dict[str, Any]:
    """Returns the fields about the remote copy of a package; none if it has no copy."""
    status = remote_status.read(path)
    if status is None:
        return {}
    return {
        "remote": package_schema.printable(status.url),
        "durable_step": status.step,
        "durability": package_schema.printable(remote_status.describe(status)),
        "remote_error": package_schema.printable(status.error),
    }


def _position(
    path: Path, found: list[Session], progress: live_progress.ProgressRecord | None
) -> tuple[int | None, int | None]:
    """Returns the step and the epoch of the run. A session that loads, or failed before it had loaded, has no
    progress: then the run is at the checkpoint from which it continues."""
    if progress is not None:
        return progress.step, progress.epoch
    line = PackageFolder(path).store().lineage() if found and (path / "Checkpoints").is_dir() else []
    return (line[-1].step, line[-1].epoch) if line else (None, None)


def _reason(session: Session) -> str | None:
    reason = session.recorded.reason
    is_early_end = session.state in ("succeeded", "stopped") and reason in (EARLY_STOP, TIME_LIMIT)
    return reason if is_early_end else None


def _state_before_sessions(stored_tasks: Sequence[task_file.StoredTask]) -> str:
    """Returns "new", or the end of a task that was stopped while it was pending."""
    states = [one.task.state for one in stored_tasks]
    return states[-1] if states and all(state in ENDED for state in states) else "new"


def _newest_of_sweep(stored_tasks: Sequence[task_file.StoredTask]) -> Task | None:
    """Returns the newest task that is one of a sweep."""
    return next((one.task for one in reversed(stored_tasks) if one.task.sweep is not None), None)


def _group(path: Path, sweep: str) -> str:
    values = package_schema.load(path, "args.json")
    values.pop("seed", None)
    if isinstance(section := values.get("roost"), dict):  # DLNest's contract
        section.pop("seed", None)
    return f"{sweep}-{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def _seconds(session: Session, progress: live_progress.ProgressRecord | None) -> float:
    seconds, started = session.recorded.seconds, session.recorded.started
    if seconds is not None or started is None:
        return float(seconds or 0.0)
    if session.state == "running":
        return max(0.0, time.time() - float(started))
    # The session crashed without a record of its end: the last progress is the best estimate of it.
    return max(0.0, progress.wall - float(started)) if progress else 0.0


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
        except (CheckpointError, NotFound, FileNotFoundError):  # its run removed it just now
            continue
        value = info.metrics.get(monitor)
        if value is not None and math.isfinite(value):
            found.append(value)
    return (min(found) if rule.get("mode") == "min" else max(found)) if found else None


def _newest_metric(path: Path, found: list[Session], monitor: str | None) -> tuple[str | None, float | None]:
    """Returns the metric to show and its newest value, from the ends of the records files: of the newest
    one, and of earlier ones as long as the metric is not found. A session that trains no step, but tests, has
    no other metrics than those of the test."""
    newest: dict[str, float] = {}
    before: int | None = None
    for number in [*(session.number for session in reversed(found)), lineage.INHERITED_SESSION]:
        file = path / "records" / f"{number}.jsonl"
        for row in reversed(records.read_tail(file)):
            if before is not None and row["step"] > before:
                continue  # a later session went on from an earlier checkpoint
            newest = {**records.metrics(row), **newest}
            if monitor in newest or (monitor is None and "valid/loss" in newest):
                break
        if monitor in newest or (monitor is None and any(name.startswith("valid/") for name in newest)):
            break
        start = records.start_step(file)
        before = start if before is None or start is None else min(before, start)
    valid = [name for name in newest if name.startswith("valid/")]
    names = [monitor, "valid/loss", *valid, "train/loss", *newest]
    name = next((name for name in names if name in newest), monitor)
    return name, newest.get(name) if name is not None else None
