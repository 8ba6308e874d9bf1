"""What a known cause is, and what one may look at to recognise it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from roost.base.errors import RoostError
from roost.base.exception_record import ExceptionRecord
from roost.package.package import PackageFolder
from roost.package.records import Columns


class Cause(NamedTuple):
    """Why it failed, in words, and what to do about it; each one line."""

    words: str
    fix: str = ""


@dataclass(frozen=True)
class FailureContext:
    """Where an error came up, besides what it says itself. Everything here may be missing: it is asked after
    a failure, of which it may be a part."""

    package: Path | None = None

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The package's settings in effect, as they were typed."""
        try:
            return PackageFolder(self.package).settings() if self.package else {}
        except (RoostError, OSError):
            return {}

    @cached_property
    def project(self) -> Path | None:
        """The project's folder, if it is still there."""
        if self.package is None:
            return None
        try:
            found = PackageFolder(self.package).project
        except (RoostError, OSError):
            return None
        return found if found.is_dir() and found != self.package else None

    @cached_property
    def left_out(self) -> Mapping[str, str]:
        """What of the project was not copied, and why."""
        try:
            found = PackageFolder(self.package).manifest.get("left_out", []) if self.package else []
        except RoostError:
            return {}
        return {str(one["path"]): str(one["reason"]) for one in found}

    @cached_property
    def records(self) -> Columns:
        """What the run has recorded."""
        return PackageFolder(self.package).records() if self.package else Columns()


CauseRule = Callable[[ExceptionRecord, FailureContext], Cause | None]
"""Recognises one cause: gives it, or None when this is another error. It must be right when it speaks."""


def rule_by_text(kind: str, pattern: str, words: str, fix: str) -> CauseRule:
    """A cause that is known by the class and the text alone.

    Args:
        kind: The error is of this class, or of one that derives from it.
        pattern: Its text begins like this.
        words: `Cause.words`; ``{0}`` is the pattern's first group.
        fix: `Cause.fix`, likewise.
    """
    known = re.compile(pattern)

    def row(raised: ExceptionRecord, scene: FailureContext) -> Cause | None:
        match = known.match(raised.text) if raised.is_a(kind) else None
        if match is None:
            return None
        groups = [group or "" for group in match.groups()]
        return Cause(words.format(*groups), fix.format(*groups))

    return row


def gib(num_bytes: float) -> str:
    """Bytes as torch writes them: ``1.50 GiB``."""
    size = float(num_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.2f} {unit}"
