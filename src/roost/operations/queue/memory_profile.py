"""Under which a task's memory is remembered: what its package runs, and with which settings."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath

from roost.config import layers
from roost.lab.memory import memory_prediction
from roost.lab.sessions.session_plan import Plan
from roost.package.package import PackageFolder

_CODE_SUFFIXES = frozenset([".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"])
"""Of other files the config names those that matter, and its settings are in the profile."""


def profile_of(package: PackageFolder, plan: Plan) -> tuple[str, float | None]:
    """`roost.lab.memory.memory_prediction.profile` of a session that is planned. That of a command is empty:
    nobody measures
    what it takes.

    Args:
        package: The session's.
        plan: What is started.

    Raises:
        NotFound: A file of the package cannot be read.
    """
    if plan.is_command:
        return "", None
    settings = layers.apply_overrides(package.settings(), plan.request["overrides"])
    return memory_prediction.profile(
        _code_digest(package), {**settings, "strategy": plan.request["strategy"]}
    )


def _code_digest(package: PackageFolder) -> str:
    files = package.manifest["files"]
    hashes = {name: file["sha256"] for name, file in files.items() if PurePath(name).suffix in _CODE_SUFFIXES}
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
