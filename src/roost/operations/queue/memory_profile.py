"""The profile under which the memory use of a task is learned: digests of the code of its package and of its
settings (`roost.lab.memory.memory_features`)."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath

from roost.lab.memory.memory_features import memory_features
from roost.lab.sessions.session_plan import SessionPlan
from roost.package.package import PackageFolder

_CODE_SUFFIXES = frozenset([".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"])
"""Other files that matter are named by the config, whose settings are in the profile."""


def profile_of(
    package: PackageFolder, plan: SessionPlan, *, sweep: str | None = None
) -> tuple[str, float | None]:
    """Returns the memory profile of a planned session, and its scale. It is empty for a command, whose memory
    use is not measured.

    Args:
        package: The package of the session.
        plan: The session plan.
        sweep: The id of the sweep of its task, if it is of one.

    Raises:
        NotFound: A file of the package cannot be read.
    """
    if plan.is_command:
        return "", None
    settings = package.with_overrides(package.settings(), plan.request["overrides"])
    features, scale = memory_features(
        {**settings, "strategy": plan.request["strategy"]},
        family=str(package.request.get("project") or package.path.parent),
        code=_code_digest(package),
        sweep=sweep,
    )
    return features.to_text(), scale


def _code_digest(package: PackageFolder) -> str:
    files = package.manifest["files"]
    hashes = {name: file["sha256"] for name, file in files.items() if PurePath(name).suffix in _CODE_SUFFIXES}
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
