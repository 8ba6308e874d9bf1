"""The base class of plugins in DLNest's contract."""

from __future__ import annotations

from typing import Any, ClassVar


class DLNestPluginBase:
    """A class of functions that run before methods of the project's objects. A function has the name of a
    method of LifeCycle, Dataset or Runner (``runnerInit`` and ``datasetInit`` for the two ``init``), and gets
    the project's object as ``self``. A plugin is never constructed.

    Attributes:
        _NAME: The plugin's name, under which ``plugins_config`` has its settings.
        _config: Every setting with its default.
        _defaultKeys: The settings that a new project's config lists.
    """

    _NAME: ClassVar[str] = ""
    _config: ClassVar[dict[str, Any]] = {}
    _defaultKeys: ClassVar[list[str]] = []

    @classmethod
    def getName(cls) -> str:
        """Returns the plugin's name."""
        return cls._NAME

    @classmethod
    def getDefaultConfig(cls) -> dict[str, Any]:
        """Returns the settings that a new project's config lists, with their defaults."""
        return {key: cls._config[key] for key in cls._defaultKeys}

    @classmethod
    def getFullConfig(cls) -> dict[str, Any]:
        """Returns every setting with its default."""
        return cls._config

    @classmethod
    def getArgs(cls, self: Any, pluginName: str, name: str, default: Any) -> Any:
        """Returns a setting of a plugin from the config of a project's object; ``default`` if it is not
        set."""
        given = (self.getArgs().get("plugins_config") or {}).get(pluginName) or {}
        return given.get(name, default)
