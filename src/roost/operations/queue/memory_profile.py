"""The profile under which the memory use of a task is learned: digests of the code of its package and of its
settings (`roost.lab.memory.memory_features`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from roost.config.dlnest import dlnest_settings
from roost.lab.memory.memory_features import memory_features
from roost.lab.sessions.session_plan import SessionPlan
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder, with_overrides

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
    settings = with_overrides(package, package.settings, plan.request["overrides"])
    features, scale = memory_features(
        {**_relevant_settings(package, settings), "strategy": plan.request["strategy"]},
        family=str(package.request.get("project") or package.path.parent),
        code=_code_digest(package),
        sweep=sweep,
    )
    return features.to_text(), scale


def _relevant_settings(package: PackageFolder, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the settings with those of roost at the top. In a package of DLNest's contract, they are
    in a section of their own, and all other keys are the user's."""
    if PackageKind.of(package.request) is not PackageKind.DLNEST:
        return settings
    not_used = (dlnest_settings.SECTION, dlnest_settings.CHECKPOINTS, "save_root", "root_file_path")
    own = {name: value for name, value in settings.items() if name not in not_used}
    return {**settings.get(dlnest_settings.SECTION, {}), "args": own}


def _code_digest(package: PackageFolder) -> str:
    files = package.manifest["files"]
    hashes = {name: file["sha256"] for name, file in files.items() if PurePath(name).suffix in _CODE_SUFFIXES}
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
