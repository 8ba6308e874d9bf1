"""The typed settings of a package, and the files of its own code that they name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roost.config.dlnest.dlnest_settings import DlnestSettings, parse_dlnest_settings
from roost.config.run_settings import RunSettings
from roost.config.settings import Settings, Where
from roost.package.dlnest.named_paths import require_packaged
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.project_preflight import check_settings, named_files


def parse_package_settings(
    package: PackageFolder, values: Mapping[str, Any], *, project: Path, folder: str, where: Where
) -> RunSettings:
    """Returns the typed settings of a package, according to its kind.

    Args:
        package: The package.
        values: Its settings, possibly with overrides of a coming session.
        project: The project's folder, ``${project}`` in native settings.
        folder: The value of ``${package}`` in native settings.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A reference, key, type or range is wrong.
    """
    if PackageKind.of(package.request) is PackageKind.DLNEST:
        return parse_dlnest_settings(values, where=where)
    return check_settings(values, project=project, package=folder, where=where)


def code_of(settings: RunSettings, package: PackageFolder, where: Where) -> list[Path]:
    """Returns the files and folders of a package that its settings name, after checking that each exists and
    has the class that is named.

    Raises:
        ConfigError: One is missing, or has not the class; or a config may not name the class.
    """
    if isinstance(settings, DlnestSettings):
        return require_packaged(settings, package, where)
    assert isinstance(settings, Settings)
    return named_files(settings, root=package.path, where=where)
