"""``roots.jsonl`` beside the queue: the folders that hold packages of tasks, for when the queue is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from roost.base import durable, safe_read

_NAME = "roots.jsonl"


def read(folder: Path) -> list[Path]:
    """The folders that were noted; a damaged line is passed over."""
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


def note(folder: Path, packages: Iterable[Path]) -> None:
    """Notes where packages lie.

    Raises:
        OSError: It cannot be written.
    """
    known = set(read(folder))
    new = [root for root in dict.fromkeys(package.parent for package in packages) if root not in known]
    if not new:
        return
    fd = durable.open_append(folder / _NAME)
    try:
        # Begins a line of its own, whatever a full disk has left of the last one.
        durable.append(fd, b"".join(b"\n" + json.dumps(str(root)).encode() + b"\n" for root in new))
        durable.sync(fd)
    except OSError as error:  # a descriptor has no name
        raise OSError(error.errno, error.strerror, str(folder / _NAME)) from error
    finally:
        os.close(fd)
