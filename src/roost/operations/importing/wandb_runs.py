"""Runs of W&B that were written offline: files ``run-ID.wandb``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roost.base import safe_read
from roost.base.errors import ConfigError
from roost.operations import work_progress
from roost.operations.importing.imported_run import ImportedRun, RunState, free_name
from roost.package.records import MAX_BYTES, Row
from roost.train.mirrors import wandb_offline_log
from roost.train.mirrors.mirror_kinds import require_library

_NONFINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""As W&B writes them, in texts."""
_OWN_KEYS = ("_step", "_timestamp", "_runtime", "_wandb", "epoch")
_KILLED = 255
_MAX_SECONDS = 1e12


def find_files(path: Path) -> list[Path]:
    """Returns the files of runs at and below a path, sorted."""
    if path.is_file():
        return [path]
    return sorted(one for one in path.rglob("run-*.wandb") if one.is_file() and not one.parent.is_symlink())


def read_files(path: Path) -> Iterator[ImportedRun]:
    """Yields the run of each file.

    Raises:
        ConfigError: wandb, which knows the format, is not installed; or a file is not one of W&B.
        OSError: A file cannot be read.
    """
    require_library("wandb", "--format")
    for file in work_progress.track(find_files(path), "reading runs of W&B"):
        yield _run(file)


def _run(path: Path) -> ImportedRun:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]
    from wandb.proto import wandb_internal_pb2 as proto

    data = bytes(safe_read.read(path, max_bytes=MAX_BYTES))
    if not data.startswith(wandb_offline_log.HEADER):
        fix = "name the file run-ID.wandb of an offline run, or its folder"
        raise ConfigError("the file is not a run of W&B", where=path, fix=fix)
    about, exit_code, runtime = None, None, 0.0
    settings: dict[str, Any] = {}
    rows, left_out = list[Row](), set[str]()
    for body in wandb_offline_log.records(data):
        try:
            record: Any = proto.Record.FromString(body)  # type: ignore[attr-defined]
        except DecodeError as error:
            raise ConfigError(f"a record cannot be read: {error}", where=path) from None
        if record.HasField("run"):
            about = record.run
            settings |= _items(about.config.update)
        elif record.HasField("config"):
            settings |= _items(record.config.update)
        elif record.HasField("history"):
            values = _items(record.history.item)
            row, others = _row(values, len(rows))
            left_out |= others
            if len(row) > len(("step", "epoch", "time")):
                rows.append(row)
        elif record.HasField("exit"):
            exit_code, runtime = record.exit.exit_code, float(record.exit.runtime)
    settings.pop("_wandb", None)
    if about is None:
        raise ConfigError("the file has no run", where=path, fix="it may have been cut before it began")
    started = about.start_time.seconds + about.start_time.nanos / 1e9
    return ImportedRun(
        system="wandb",
        source=path,
        name=about.display_name or about.run_id,
        key=about.run_id,
        settings=settings,
        rows=sorted(rows, key=lambda row: row["step"]),
        tags=list(about.tags),
        note=about.notes,
        state=_state(exit_code),
        started=started or None,
        ended=max((row["time"] for row in rows), default=started + runtime),
        left_out=[f"values that are no numbers: {', '.join(sorted(left_out)[:5])}"] if left_out else [],
    )


def _state(exit_code: int | None) -> RunState:
    """A run without an exit was killed, or still writes."""
    if exit_code is None or exit_code == _KILLED:
        return "stopped"
    return "failed" if exit_code else "succeeded"


def _items(items: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        name = "/".join(item.nested_key) or item.key
        try:
            found[name] = json.loads(item.value_json)
        except (ValueError, RecursionError):  # of another program
            continue
    return found


def _row(values: Mapping[str, Any], index: int) -> tuple[Row, set[str]]:
    """Returns the row of one step, and the names of what is no number."""
    row: Row = {
        "step": _whole(values.get("_step"), index),
        "epoch": _whole(values.get("epoch"), 0),
        "time": _seconds(values.get("_timestamp")),
    }
    others = set()
    for name, value in values.items():
        number = _NONFINITE.get(value, value) if isinstance(value, str) else value
        if name in _OWN_KEYS and not (name == "epoch" and number != row["epoch"]):
            continue
        if isinstance(number, float) or (isinstance(number, int) and abs(number) < 2**63):
            row[free_name(name)] = int(number) if isinstance(number, bool) else number
        else:
            others.add(name)
    return row, others


def _whole(value: object, default: int) -> int:
    return int(value) if isinstance(value, int | float) and abs(value) < 2**53 else default


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < _MAX_SECONDS else 0.0
