"""What was predicted with a package: ``<package>/predictions/<n>/``, or a folder that was named.

It holds meta.json, predictions.jsonl (a line for each sample, in the order of the set) and ``<name>.npy`` for
what is more than a few numbers for each sample. It stands whole or not at all.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable
from roost.base.errors import Refused
from roost.package import sessions
from roost.package.package import PackageFolder

NAME = "predictions"
META_FILE, PREDICTIONS_FILE = "meta.json", "predictions.jsonl"
FORMAT = 1


class PredictionMeta(msgspec.Struct, frozen=True, kw_only=True):
    """meta.json: what was predicted, of what, and with which weights."""

    format: int = FORMAT
    package: str
    checkpoint: int
    step: int
    epoch: int = 0
    averaged: str | None = None
    source: str
    """The set, or what was typed for one."""
    count: int
    """Samples."""
    values: dict[str, dict[str, Any]]
    """By name: ``file``, ``shape`` and ``dtype`` of what is a file; ``{}`` for what stands in the lines."""
    device: str = "cpu"
    precision: str = "32"
    seconds: float = 0.0
    created: float = 0.0
    command: list[str] = []


def list_numbers(root: Path) -> list[int]:
    """Those of the folders below ``root``, ascending."""
    if not root.is_dir():
        return []
    with os.scandir(root) as entries:
        return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())


def read(folder: Path) -> PredictionMeta | None:
    """meta.json of a prediction; None when it is not there, or not as roost writes it."""
    try:
        return msgspec.convert(sessions.load_json(folder / META_FILE), PredictionMeta)
    except msgspec.ValidationError:
        return None


def read_all(package: PackageFolder) -> list[tuple[int, PredictionMeta]]:
    """The package's own, oldest first."""
    root = package.path / NAME
    found = [(number, read(root / str(number))) for number in list_numbers(root)]
    return [(number, meta) for number, meta in found if meta is not None]


def commit(staging: Path, root: Path, output: Path | None) -> Path:
    """Gives a finished prediction its place by one rename: ``output``, or the next number below ``root``.

    Raises:
        Refused: ``output`` is there already.
        OSError: It cannot be renamed.
    """
    if output is not None:
        try:
            durable.commit_folder(staging, output)
        except FileExistsError:
            raise output_exists_error(output) from None
        return output
    while True:
        place = root / str(max(list_numbers(root), default=0) + 1)
        try:
            durable.commit_folder(staging, place)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):  # somebody else was faster
                continue
            raise
        return place


def output_exists_error(output: Path) -> Refused:
    """That something stands where predictions should go."""
    return Refused(
        "is there already, and is not overwritten",
        setting="-o",
        received=str(output),
        fix="name a new folder",
    )
