"""Writes result.json, the result of an analysis."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from roost.analysis import result_values
from roost.analysis.analysis_folder import RESULT
from roost.analysis.saved_files import SavedFiles
from roost.base import durable, traceback_frames
from roost.base.exception_record import record_exception
from roost.base.traceback_frames import ProjectFiles
from roost.package.checkpoints.checkpoint import Manifest

FORMAT = 1
_MAX_CHARACTERS = 2000


def write(
    files: SavedFiles,
    *,
    own: ProjectFiles,
    script: Mapping[str, Any],
    checkpoint: Manifest | None,
    device: str | None,
    seconds: float,
    value: object = None,
    error: BaseException | None = None,
) -> None:
    """Writes result.json, as the last file of an analysis.

    Args:
        files: The folder of the analysis, and the files that were saved.
        own: Identifies the user's files, whose lines the traceback shows.
        script: Path and sha256 of the script.
        checkpoint: The analyzed checkpoint.
        device: The device of the runner.
        seconds: Duration since the start of loading.
        value: Return value of the function, see `result_values.JsonResult`.
        error: The error that ended the analysis.
    """
    described = result_values.JsonResult(value, files)
    body = {
        "format": FORMAT,
        "script": dict(script),
        "checkpoint": {"id": checkpoint.id, "step": checkpoint.step, "epoch": checkpoint.epoch}
        if checkpoint is not None
        else None,
        "device": device,
        "seconds": round(seconds, 3),
        "saved": files.saved,
        "value": described.value,
        "nonfinite": described.nonfinite,
        "notes": described.notes,
        "error": _error(error, own) if error is not None else None,
    }
    durable.write(files.place / RESULT, json.dumps(body, indent=1, allow_nan=False).encode() + b"\n")


def _error(error: BaseException, own: ProjectFiles) -> dict[str, Any]:
    found = record_exception(error)
    # An error before any of the user's code ran has no line of it.
    lines = "\n".join(traceback_frames.format_chain(found, own)) if own.innermost_line(found) else None
    return {
        "type": found.name,
        "message": traceback_frames.truncate(found.text_with_notes, _MAX_CHARACTERS),
        "traceback": lines,
    }
