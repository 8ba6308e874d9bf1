"""Predictions of a package, in ``<package>/predictions/<n>/`` or another folder. Of a task of the lab it is
also the session folder (`roost.package.session_folder`).

The folder contains meta.json, predictions.jsonl (a line for each sample, in the order of the set) and
``<name>.npy`` for values of more than a few numbers per sample. It is committed by one rename, in a session
folder by that of meta.json.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable
from roost.base.errors import Refused
from roost.package import package_name, sessions
from roost.package.package import PackageFolder

NAME = "predictions"
UNFINISHED = "result"
"""The name of a prediction in its scratch folder until it is complete; its rename is its last step."""
META_FILE, PREDICTIONS_FILE = "meta.json", "predictions.jsonl"
FORMAT = 1


class PredictionMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The content of meta.json: the predicted values, their set, and the weights."""

    format: int = FORMAT
    package: str
    checkpoint: int
    step: int
    epoch: int = 0
    averaged: str | None = None
    source: str
    """The set, or the input that was given instead of one."""
    count: int
    """The number of samples."""
    values: dict[str, dict[str, Any]]
    """By name: ``file``, ``shape`` and ``dtype`` of a value in a file; ``{}`` for one in
    predictions.jsonl."""
    device: str = "cpu"
    precision: str = "32"
    seconds: float = 0.0
    created: float = 0.0
    command: list[str] = []


def read(folder: Path) -> PredictionMeta | None:
    """Reads the meta.json of a prediction; None if it is missing or invalid."""
    try:
        return msgspec.convert(sessions.load_json(folder / META_FILE), PredictionMeta)
    except msgspec.ValidationError:
        return None


def read_all(package: PackageFolder) -> list[tuple[int, PredictionMeta]]:
    """Returns number and meta.json of the predictions inside a package, the oldest first."""
    root = package.path / NAME
    found = [(number, read(root / str(number))) for number in package_name.numbers(root)]
    return [(number, meta) for number, meta in found if meta is not None]


def commit(staging: Path, root: Path, output: Path | None, *, announce: Callable[[Path], None]) -> None:
    """Renames a finished prediction to ``output``, or to the next number in ``root``.

    Args:
        staging: The prediction.
        root: The folder of the package's predictions.
        output: The folder that it becomes; None: the next number.
        announce: Called with each path before the rename to it.

    Raises:
        Refused: ``output`` exists.
        OSError: The folder cannot be renamed.
    """
    if output is not None:
        announce(output)
        try:
            durable.commit_folder(staging, output)
        except FileExistsError:
            raise output_exists_error(output) from None
        return
    while True:
        path = root / str(max(package_name.numbers(root), default=0) + 1)
        announce(path)
        try:
            durable.commit_folder(staging, path)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):  # another process has taken the number
                continue
            raise
        return


def commit_into(staging: Path, folder: Path) -> None:
    """Moves the files of a finished prediction into the session folder of its task, meta.json last: with it
    the prediction is complete.

    Raises:
        OSError: A file cannot be moved.
    """
    for name in sorted(os.listdir(staging), key=lambda name: name == META_FILE):  # noqa: PTH208  - names alone
        durable.rename(staging / name, folder / name)
    durable.remove_folder(staging)


def output_exists_error(output: Path) -> Refused:
    """Returns the error for an output folder that exists."""
    return Refused(
        "exists already, and is not overwritten",
        setting="-o",
        received=str(output),
        fix="name a new folder",
    )
