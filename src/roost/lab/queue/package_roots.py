"""``roots.jsonl`` in the queue's folder: the folders that hold packages of tasks, for a rebuild of the
queue."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from roost.base import durable, safe_read

_NAME = "roots.jsonl"


def read(folder: Path) -> list[Path]:
    """Returns the recorded folders; damaged lines are skipped."""
    try:
        lines = bytes(safe_read.read(folder / _NAME)).splitlines()
    except FileNotFoundError:
        return []
    return list(dict.fromkeys(Path(found) for line in lines if isinstance(found := _read_line(line), str)))


def _read_line(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def add(folder: Path, packages: Iterable[Path]) -> None:
    """Records the parent folders of packages.

    Raises:
        OSError: The file cannot be written.
    """
    known = set(read(folder))
    new = [root for root in dict.fromkeys(package.parent for package in packages) if root not in known]
    if not new:
        return
    fd = durable.open_append(folder / _NAME)
    try:
        # Each starts with a line break, in case a full disk cut off the last line.
        durable.append(fd, b"".join(b"\n" + json.dumps(str(root)).encode() + b"\n" for root in new))
        durable.sync(fd)
    except OSError as error:  # an error of a descriptor names no file
        raise OSError(error.errno, error.strerror, str(folder / _NAME)) from error
    finally:
        os.close(fd)
