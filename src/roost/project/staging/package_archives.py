"""The staged archives of a package, for the process that reads its data.

A package keeps ``${staged}`` as it was written; the folder is that of the machine on which a session runs. A
project of DLNest's contract finds it in the variable ``ROOST_STAGED``, and that of one of several archives in
``ROOST_STAGED_NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from roost.base.errors import Refused
from roost.base.text.byte_sizes import format_bytes
from roost.config import interpolation
from roost.config.sections.staging import Stage
from roost.config.settings import Where
from roost.package.results import staged_archives
from roost.package.results.staged_archives import STAGE_KEY, NamedArchive, StagedRecord
from roost.project.staging import archive_staging
from roost.project.staging.archive_source import ArchiveSource
from roost.project.staging.archive_staging import StagedArchive

VARIABLE = "ROOST_STAGED"
UNASKED_BYTES = 10**9
"""`roost check` unpacks an archive up to this size without being asked: that takes seconds."""


@dataclass(frozen=True)
class StagedData:
    """The archives of a package that are unpacked on this machine."""

    archives: Mapping[str, StagedArchive] = field(default_factory=dict)
    """By name."""

    def folders(self) -> dict[str, str]:
        """Returns the folders by the names of references: ``staged``, ``staged.NAME``."""
        found = {f"{interpolation.STAGED}.{name}": one.folder for name, one in self.archives.items()}
        if len(self.archives) == 1:
            found[interpolation.STAGED] = next(iter(self.archives.values())).folder
        return found

    def export(self, environment: MutableMapping[str, str]) -> None:
        """Sets the variables of the folders."""
        for name, one in self.archives.items():
            environment[f"{VARIABLE}_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"] = one.folder
        if len(self.archives) == 1:
            environment[VARIABLE] = next(iter(self.archives.values())).folder

    def record(self, package: Path) -> None:
        """Writes the digests into the package, against which later sessions compare.

        Raises:
            OSError: The file cannot be written.
        """
        if self.archives:
            staged_archives.write(
                package,
                {
                    name: StagedRecord(
                        archive=one.archive,
                        sha256=one.sha256,
                        num_files=one.num_files,
                        num_bytes=one.num_bytes,
                    )
                    for name, one in self.archives.items()
                },
            )


NO_ARCHIVES = StagedData()


def stage_data(
    stage: Stage,
    *,
    package: Path,
    project: str,
    where: Where,
    key: str = STAGE_KEY,
    only_small: bool = False,
) -> StagedData:
    """Returns the archives of a package unpacked on this machine. They stay there until this process ends.

    Each rank of a session calls this: one of each machine unpacks, and the others wait for it.

    Args:
        stage: The value of ``data.stage``.
        package: The package.
        project: The folder of the project, to which paths are relative.
        where: Returns where a dotted key was set, for messages.
        key: The dotted key of ``stage``.
        only_small: Whether an archive that takes more than seconds is refused unless it is staged already.

    Raises:
        RoostError, OSError: As `roost.project.staging.archive_staging.stage`; or an archive is larger than
            ``only_small`` allows.
    """
    recorded = staged_archives.read(package)
    found = {}
    for one in staged_archives.named_archives(stage, key=key, where=where):
        known = recorded.get(one.name)
        sha256 = known.sha256 if known is not None else None
        if only_small:
            _require_small(one, Path(project), recorded, where)
        found[one.name] = archive_staging.stage(
            one.settings,
            project=Path(project),
            package=package,
            sha256=sha256,
            setting=one.key,
            where=where(one.key),
        )
    return StagedData(found)


def require_present(
    stage: Stage, *, package: Path | None = None, project: Path, where: Where, key: str = STAGE_KEY
) -> None:
    """Checks, before a session is made, that each archive is staged here or can be opened. None is read.

    Args:
        stage: The value of ``data.stage``.
        package: The package; None: there is none yet.
        project: The folder of the project, to which paths are relative.
        where: Returns where a dotted key was set, for messages.
        key: The dotted key of ``stage``.

    Raises:
        RoostError: As `roost.project.staging.archive_staging.find_unstaged`.
    """
    recorded = staged_archives.read(package) if package is not None else {}
    for one in staged_archives.named_archives(stage, key=key, where=where):
        _find_unstaged(one, project, recorded, where)


def _find_unstaged(
    one: NamedArchive, project: Path, recorded: Mapping[str, StagedRecord], where: Where
) -> ArchiveSource | None:
    known = recorded.get(one.name)
    sha256 = known.sha256 if known is not None else None
    return archive_staging.find_unstaged(
        one.settings, project=project, sha256=sha256, setting=one.key, where=where(one.key)
    )


def _require_small(
    one: NamedArchive, project: Path, recorded: Mapping[str, StagedRecord], where: Where
) -> None:
    source = _find_unstaged(one, project, recorded, where)
    if source is None or (source.size is not None and source.size <= UNASKED_BYTES):
        return
    size = format_bytes(source.size) if source.size is not None else "an unknown size"
    raise Refused(
        f"settings and imports are right; the rest needs the data, whose archive ({size}) is not staged here",
        setting=one.key,
        received=source.shown,
        where=where(one.key),
        fix="add --stage, which unpacks it first; or check on a small sample: data.stage.archive=sample.tar",
    )
