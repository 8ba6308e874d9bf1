"""The plugin classes that a config of DLNest's contract names."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from roost.base.errors import ConfigError
from roost.config.dlnest.bundled_plugins import BUNDLED, require_known
from roost.config.section_schema import Where
from roost.package.package import PackageFolder
from roost.project.dlnest import module_loading

_CLASS = "DLNestPlugin"


def load_plugins(entries: Sequence[str], package: PackageFolder, where: Where) -> list[type]:
    """Returns the plugin classes, in the order of the config.

    Args:
        entries: The setting ``plugins``: names of bundled plugins, and paths of files with a class
            ``DLNestPlugin``.
        package: The package, from which files are taken.
        where: Returns where a key was set, for messages.

    Raises:
        ConfigError: There is no such plugin, or two have one name.
        ContractError: A file has no class ``DLNestPlugin``.
        Exception: An error of a plugin's code.
    """
    found: dict[str, str] = {}
    require_known(entries, where)
    classes = []
    for number, entry in enumerate(entries):
        key = f"plugins.{number}"
        one = _load(entry, key, package, where)
        name = _name(one, entry)
        if name in found:
            raise ConfigError(
                f"two plugins have the name {name}: {found[name]} and {entry}",
                setting=key,
                where=where(key),
                fix="name each plugin once, or change the `_NAME` of one",
            )
        found[name] = entry
        classes.append(one)
    return classes


def _load(entry: str, key: str, package: PackageFolder, where: Where) -> type:
    if entry in BUNDLED:
        module = importlib.import_module(f"roost.project.dlnest.plugins.{BUNDLED[entry]}")
        bundled: type = getattr(module, _CLASS)
        return bundled
    return module_loading.load_class(entry, _CLASS, package, settings=(key, key), where=where)


def _name(plugin: type, entry: str) -> str:
    return str(getattr(plugin, "_NAME", "") or Path(entry).stem)
