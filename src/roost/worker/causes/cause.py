"""A known cause of a failure, and the context in which a rule may look to recognise it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from roost.base.errors import RoostError
from roost.base.exception_record import ExceptionRecord
from roost.config.dlnest.dlnest_settings import SECTION
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.records import Columns


class Cause(NamedTuple):
    """Why a task failed, and how to fix it; one line each."""

    description: str
    fix: str = ""


@dataclass(frozen=True)
class FailureContext:
    """The package in which an error came up. Every part may be missing: it is read after a failure, and may
    be the reason of that failure."""

    package: Path | None = None

    @cached_property
    def is_dlnest(self) -> bool:
        """Whether the package is of DLNest's contract."""
        try:
            kind = PackageKind.of(PackageFolder(self.package).request) if self.package else None
        except RoostError:
            return False
        return kind is PackageKind.DLNEST

    def key(self, name: str) -> str:
        """Returns the dotted key of a setting of roost in the package's config."""
        return f"{SECTION}.{name}" if self.is_dlnest else name

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The settings of roost in effect, as they were written by the user."""
        try:
            found = PackageFolder(self.package).settings if self.package else {}
        except (RoostError, OSError):
            return {}
        if not self.is_dlnest:
            return found
        section = found.get(SECTION)  # all other keys are the user's, whatever they are called
        return section if isinstance(section, Mapping) else {}

    @cached_property
    def project(self) -> Path | None:
        """The project's folder, if it still exists."""
        if self.package is None:
            return None
        try:
            found = PackageFolder(self.package).project
        except (RoostError, OSError):
            return None
        return found if found.is_dir() and found != self.package else None

    @cached_property
    def left_out(self) -> Mapping[str, str]:
        """Files of the project that were not copied into the package, with the reason."""
        try:
            found = PackageFolder(self.package).manifest.get("left_out", []) if self.package else []
        except RoostError:
            return {}
        return {str(one["path"]): str(one["reason"]) for one in found}

    @cached_property
    def records(self) -> Columns:
        """The rows of the run."""
        return PackageFolder(self.package).records() if self.package else Columns()


CauseRule = Callable[[ExceptionRecord, FailureContext], Cause | None]
"""A rule that recognises one cause: returns it, or None for any other error. It must never be wrong: in doubt
it returns None."""


def rule_by_text(kind: str, pattern: str, description: str, fix: str) -> CauseRule:
    """Returns a rule for a cause that is recognised by class and text of the error alone.

    Args:
        kind: Name of the error's class or of one of its base classes.
        pattern: Regular expression for the beginning of the error's text.
        description: `Cause.description`; ``{0}`` is the first group of the pattern.
        fix: `Cause.fix`, with the same placeholders.
    """
    known = re.compile(pattern)

    def rule(record: ExceptionRecord, context: FailureContext) -> Cause | None:
        match = known.match(record.text) if record.is_a(kind) else None
        if match is None:
            return None
        groups = [group or "" for group in match.groups()]
        return Cause(description.format(*groups), fix.format(*groups))

    return rule


def gib(num_bytes: float) -> str:
    """Formats bytes as torch does: ``1.50 GiB``."""
    size = float(num_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.2f} {unit}"
