"""The plugin classes that a config of DLNest's contract names."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from roost.config.dlnest.bundled_plugins import (
    BUNDLED_PLUGINS,
    PLUGIN_CLASS,
    is_path,
    no_plugin_error,
    same_plugin_error,
)
from roost.config.section_schema import Where
from roost.package.package import PackageFolder
from roost.project.dlnest import module_loading


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
    classes = []
    for number, entry in enumerate(entries):
        key = f"plugins.{number}"
        one = _load(entry, key, package, where)
        name = _name(one, entry)
        if name in found:
            raise same_plugin_error(name, (found[name], entry), key, where)
        found[name] = entry
        classes.append(one)
    return classes


def _load(entry: str, key: str, package: PackageFolder, where: Where) -> type:
    if entry in BUNDLED_PLUGINS:
        module = importlib.import_module(f"roost.project.dlnest.plugins.{BUNDLED_PLUGINS[entry]}")
        bundled: type = getattr(module, PLUGIN_CLASS)
        return bundled
    if not is_path(entry):
        raise no_plugin_error(entry, key, where)
    return module_loading.load_class(entry, PLUGIN_CLASS, package, settings=(key, key), where=where)


def _name(plugin: type, entry: str) -> str:
    return str(getattr(plugin, "_NAME", "") or Path(entry).stem)
