"""The archives of ``data.stage``, checked before anything is made for a session.

Apart from `requirements`, which a submission of a program imports, too: the settings take longer to import
than all the rest of it.
"""

from __future__ import annotations

from pathlib import Path

from roost.config.dlnest.dlnest_settings import DlnestSettings
from roost.config.run_settings import RunSettings
from roost.config.sections.staging import Stage
from roost.config.settings import Settings, Where
from roost.package.results.staged_archives import DLNEST_KEY, STAGE_KEY
from roost.project.staging import package_archives


def require_archives(
    settings: RunSettings, *, project: Path, package: Path | None = None, where: Where
) -> None:
    """Checks that the archives of ``data.stage`` are staged here, or can be opened.

    Raises:
        RoostError: As `roost.project.staging.package_archives.require_present`.
    """
    if (stage := stage_of(settings)) is not None:
        key = DLNEST_KEY if isinstance(settings, DlnestSettings) else STAGE_KEY
        package_archives.require_present(stage, package=package, project=project, where=where, key=key)


def stage_of(settings: RunSettings) -> Stage:
    """Returns the value of ``data.stage``; None if the settings have no archive."""
    return settings.data.stage if isinstance(settings, Settings | DlnestSettings) else None
