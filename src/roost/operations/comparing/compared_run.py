"""Reads one run for a comparison. Of a damaged package, all that can be read is compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from roost.base.errors import NotFound, RoostError
from roost.base.text.typed_path import typed_path
from roost.config.values import nested_values
from roost.operations.comparing import environment_comparison
from roost.operations.comparing.comparison import ComparedRun
from roost.operations.listing.package_row import PackageSummary
from roost.operations.listing.package_summary import summarize
from roost.operations.reading import package_schema
from roost.operations.reading.package_schema import DamagedPackage
from roost.operations.reading.show import inexact_reasons
from roost.package import lineage, records
from roost.package.dlnest import original_package
from roost.package.kinds import PackageKind
from roost.package.lineage import ForkParent
from roost.package.package import FORMAT, PackageFolder
from roost.package.sessions import Session
from roost.package.setting_locations import setting_locations

_T = TypeVar("_T")
LINK = "-> "
"""In place of a digest, before the target of a copied link."""


@dataclass
class RunContent:
    """All of a run that is compared but its records. A part that cannot be read is None or empty, and named
    in ``unreadable``."""

    package: PackageFolder
    summary: PackageSummary
    kind: PackageKind = PackageKind.TRAIN
    sessions: list[Session] = field(default_factory=list)
    ancestry: list[ForkParent] = field(default_factory=list)
    settings: dict[str, Any] | None = None
    """The settings in effect, nested."""
    code: dict[str, str] | None = None
    """The digest of each copied file, or the target of a copied link, by path."""
    environment: dict[str, str] | None = None
    """The texts of `environment_comparison`, by name; None also before a worker has written them."""
    inexact: list[str] = field(default_factory=list)
    data_order: str | None = None
    """As `ComparedRun.data_order`."""
    unreadable: list[str] = field(default_factory=list)

    @cached_property
    def flat_settings(self) -> dict[str, Any]:
        """The settings by dotted name."""
        values = self.settings or {}
        return {".".join(path): nested_values.value_at(values, path) for path in nested_values.leaves(values)}

    def origin(self, key: str) -> str | None:
        """Returns where a setting was set; None for a default, and where that is not known."""
        try:
            found = package_schema.printable(self._origins(key))
        except (RoostError, AttributeError, TypeError):  # of a damaged provenance.json
            return None
        return found if isinstance(found, str) else None

    @cached_property
    def _origins(self) -> Callable[[str], str | None]:
        return setting_locations(self.package)

    def describe(self) -> ComparedRun:
        """Returns the description of the run in the comparison."""
        path = package_schema.printable(str(self.package.path))
        return ComparedRun(
            path=path,
            summary=self.summary,
            inexact=self.inexact,
            data_order=self.data_order,
            unreadable=self.unreadable,
        )


def read_run(path: Path) -> RunContent:
    """Reads a run. Raises no error about the package: also one that is removed meanwhile is described."""
    folder = typed_path(path).absolute()
    try:
        package, summary = original_package.open_any(folder), summarize(folder)
    except (RoostError, OSError) as error:
        return _unreadable_run(folder, error)
    found = RunContent(package, summary)
    if isinstance(package, original_package.OriginalPackage):
        found.kind = PackageKind.DLNEST
        found.settings = _read(found, "settings", lambda: dict(package_schema.printable(package.args)))
        found.unreadable.append("code, records and environment: DLNest's own programs do not store them")
        return found
    request = _read(found, "request.json", lambda: package_schema.load(folder, "request.json")) or {}
    found.kind, found.ancestry = PackageKind.of(request), lineage.ancestry_of_request(request)
    if (format := request.get("format", FORMAT)) != FORMAT:
        found.unreadable.append(f"what only a newer roost knows: the package has format {format}")
    sessions = _read(found, "sessions", lambda: package_schema.sessions(folder))
    if sessions is not None:
        found.sessions = sessions
        found.settings = _read(found, "settings", lambda: _settings(package))
        found.inexact = _read(found, "inexact reasons", lambda: inexact_reasons(package, sessions)) or []
    found.data_order = package_schema.printable(records.data_order(folder / "records"))
    if found.kind is not PackageKind.IMPORT:  # it has no code
        found.code = _read(found, "code", lambda: _code(package))
    found.environment = _read(
        found, "environment", lambda: environment_comparison.describe_environment(folder, request)
    )
    return found


def _unreadable_run(folder: Path, error: RoostError | OSError) -> RunContent:
    cause = error.message if isinstance(error, RoostError) else error.strerror or str(error)
    summary = PackageSummary(name=package_schema.printable(folder.name), state="damaged", error=cause)
    return RunContent(PackageFolder(folder), summary, unreadable=[f"the package: {cause}"])


def _read(run: RunContent, what: str, read: Callable[[], _T]) -> _T | None:
    """Returns a part of a run; None if it cannot be read, which is noted."""
    try:
        return read()
    except DamagedPackage as damage:
        cause = f"{damage.name} is damaged: {damage.cause}"
    except (RoostError, OSError) as error:
        cause = error.message if isinstance(error, RoostError) else error.strerror or str(error)
    run.unreadable.append(package_schema.printable(f"{what}: {cause}"))
    return None


def _settings(package: PackageFolder) -> dict[str, Any]:
    package_schema.load(package.path, "args.json")  # checks it
    return package_schema.settings(package)


def _code(package: PackageFolder) -> dict[str, str]:
    """Returns the copied files of a package with the content that its newest sessions were started with."""
    package_schema.load(package.path, "manifest.json")  # checks it; the names are needed as they are
    files = package.manifest["files"]
    found = {
        name: f"{LINK}{entry['link']}" if "link" in entry else entry["sha256"]
        for name, entry in files.items()
    }
    forced = {name: digest for name, digest in package.forced_changes().items() if name in found}
    return {name: digest for name, digest in {**found, **forced}.items() if digest}


def require_readable(runs: list[RunContent]) -> None:
    """Checks that there is something to compare.

    Raises:
        NotFound: Not one of the packages can be read.
    """
    if all(run.settings is None and not run.sessions and run.code is None for run in runs):
        raise NotFound("none of the packages can be read", received=runs[0].summary.error)
