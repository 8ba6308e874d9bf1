"""``verify`` of several packages: a summary of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from roost.base.errors import NotFound, RoostError
from roost.operations.listing.named_packages import names_one_package, select_packages
from roost.operations.reading.verify import Finding, verify
from roost.package.dlnest import original_folder


class VerifiedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """The findings about one of several packages."""

    package: str
    findings: list[Finding]
    error: str | None = None
    """Why the package could not be read to its end."""

    @property
    def is_bad(self) -> bool:
        """Whether a file is not as it was written, or the package could not be read."""
        return self.error is not None or any(one.is_bad for one in self.findings)


def single_package(words: Sequence[str]) -> Path | None:
    """Returns the package, or what `verify` refuses, if the words name one thing that is no folder, pattern
    or query; else None."""
    return Path(words[0]) if len(words) == 1 and names_one_package(words[0]) else None


def verify_packages(words: Sequence[str]) -> Iterator[VerifiedPackage]:
    """Compares every file of several packages with what was written, one package after the other. An error of
    one ends nothing. Packages of DLNest have nothing to compare with, and are passed over.

    Args:
        words: Paths, names, tasks, sweeps, folders and patterns, or a query:
            `roost.operations.listing.named_packages.select_packages`.

    Raises:
        NotFound: A word names nothing, or there are only packages of DLNest.
        UsageError: The query is not valid, or a word is empty.
    """
    paths = select_packages(words)
    own = [path for path in paths if not original_folder.is_original(path)]
    if not own:
        raise NotFound("DLNest wrote these packages: there is nothing to compare them with", received=words)
    return map(_verify_one, own)


def _verify_one(path: Path) -> VerifiedPackage:
    findings: list[Finding] = []
    error = None
    try:
        findings.extend(verify(path))
    except (RoostError, OSError) as failure:
        error = failure.message if isinstance(failure, RoostError) else str(failure)
    return VerifiedPackage(package=str(path), findings=findings, error=error)
