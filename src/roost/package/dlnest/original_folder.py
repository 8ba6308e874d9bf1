"""Recognises a package that DLNest's own programs wrote."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import Any

from roost.base import safe_read
from roost.base.errors import NotFound

_CODE_KEYS = {"runner_file_path", "model_file_path", "dataset_file_path", "life_cycle_file_path"}


def is_original(path: Path) -> bool:
    """Whether a folder is a package of DLNest's own programs: it has settings, or lists of checkpoints, as
    they write them, and no request.json."""
    if (path / "request.json").exists():
        return False
    settings, derived = read_json(path / "args.json"), read_json(path / "_package.json")
    # roost's own packages of the contract have a section ``roost`` beside these keys.
    names_code = settings is not None and bool(_CODE_KEYS & settings.keys()) and "roost" not in settings
    is_derived = derived is not None and "ckpt_consistent" in derived and "format" not in derived
    # A package of roost without its request.json has a file that no program of DLNest writes.
    return (names_code or is_derived) and not (path / "manifest.json").exists()


def read_json(path: Path) -> dict[str, Any] | None:
    """Returns the content of a file; None if it has no JSON object."""
    try:
        found = json.loads(safe_read.read(path))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_only_error(path: Path) -> NotFound:
    """Returns the error of an operation for which a package must be one of roost."""
    name = quote(str(path))
    reading = f"`roost show {name}`, `roost analyze {name} -s SCRIPT` or `roost export {name} --weights FILE`"
    return NotFound(
        "is a package of DLNest, which roost only reads",
        received=str(path),
        fix=f"type {reading}",
    )
