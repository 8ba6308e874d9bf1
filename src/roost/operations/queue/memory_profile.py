"""The key under which the memory use of a task is learned: a digest of the code of its package and of its
settings."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath

from roost.config import layers
from roost.lab.memory import memory_prediction
from roost.lab.sessions.session_plan import SessionPlan
from roost.package.package import PackageFolder

_CODE_SUFFIXES = frozenset([".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"])
"""Other files that matter are named by the config, whose settings are in the profile."""


def profile_of(package: PackageFolder, plan: SessionPlan) -> tuple[str, float | None]:
    """Returns the memory profile of a planned session (`memory_prediction.memory_profile`). It is
    empty for a command, whose memory use is not measured.

    Args:
        package: The package of the session.
        plan: The session plan.

    Raises:
        NotFound: A file of the package cannot be read.
    """
    if plan.is_command:
        return "", None
    settings = layers.apply_overrides(package.settings(), plan.request["overrides"])
    return memory_prediction.memory_profile(
        _code_digest(package), {**settings, "strategy": plan.request["strategy"]}
    )


def _code_digest(package: PackageFolder) -> str:
    files = package.manifest["files"]
    hashes = {name: file["sha256"] for name, file in files.items() if PurePath(name).suffix in _CODE_SUFFIXES}
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
