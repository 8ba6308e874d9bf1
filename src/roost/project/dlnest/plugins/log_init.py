"""The plugin LogInit: configures Python's logging at the start of a run."""

from __future__ import annotations

import logging
import sys
from typing import Any, ClassVar

from roost.project.dlnest.plugins.plugin_base import DLNestPluginBase


class LogInit(DLNestPluginBase):
    """Prints the messages of Python's logging from ``level`` on, in ``format`` with times in ``datefmt``."""

    _NAME = "LogInit"
    _config: ClassVar[dict[str, Any]] = {
        "level": "INFO",
        "format": "[%(asctime)s][%(levelname)s] %(message)s",
        "datefmt": "%Y-%m-%d %H:%M:%S",
    }
    _defaultKeys: ClassVar[list[str]] = ["level"]

    def BAll(self) -> None:
        """Configures the root logger."""
        level, style, times = (
            DLNestPluginBase.getArgs(self, LogInit._NAME, key, default)
            for key, default in LogInit._config.items()
        )
        logging.basicConfig(level=level, format=style, datefmt=times, stream=sys.stdout, force=True)


DLNestPlugin = LogInit
