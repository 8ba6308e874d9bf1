"""result.json: what came of an analysis."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from roost.analysis import frames, values
from roost.analysis.files import Files
from roost.analysis.folder import RESULT
from roost.base import durable
from roost.package.checkpoint import Info

FORMAT = 1


def write(
    files: Files,
    *,
    script: Mapping[str, Any],
    checkpoint: Info | None,
    device: str | None,
    seconds: float,
    value: object = None,
    error: BaseException | None = None,
) -> None:
    """Writes the result, last of all.

    Args:
        files: Where, and what was saved.
        script: Path and sha256 of what ran.
        checkpoint: Whose weights were looked at.
        device: Where.
        seconds: How long it took, from the start of loading.
        value: What was given back, see `values.Described`.
        error: What ended it before.

    Raises:
        OSError: It cannot be written.
    """
    described = values.Described(value, files)
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
        "error": _error(error) if error is not None else None,
    }
    durable.write(files.place / RESULT, json.dumps(body, indent=1, allow_nan=False).encode() + b"\n")


def _error(error: BaseException) -> dict[str, Any]:
    return {"type": type(error).__name__, "message": frames.text(error), "traceback": frames.told(error)}
