"""The plugin SimpleCMDVisualize: the newest values of the log as a line of output."""

from __future__ import annotations

from typing import Any, ClassVar

from roost.project.dlnest.plugins.plugin_base import DLNestPluginBase

_FORMAT = "\t| {}: {}"


class SimpleCMDVisualize(DLNestPluginBase):
    """Prints the newest values of ``keys`` at every ``stride``-th step of an epoch, if the runner visualizes
    there, on rank 0. ``format`` has a text for a key, into which its name and its value are put."""

    _NAME = "SimpleCMDVisualize"
    _config: ClassVar[dict[str, Any]] = {"stride": 1, "keys": [], "format": {}}
    _defaultKeys: ClassVar[list[str]] = ["stride", "keys", "format"]

    def visualize(self: Any, log: dict[str, Any], iter: int, epoch: int) -> None:
        """Prints the line."""
        stride, keys, formats = (
            DLNestPluginBase.getArgs(self, SimpleCMDVisualize._NAME, key, default)
            for key, default in SimpleCMDVisualize._config.items()
        )
        if self._status.rank not in (-1, 0) or iter % max(1, int(stride)):
            return
        line = f"epoch {epoch} step {iter}"
        for key in keys:
            value = log.get(key)
            newest = value[-1] if isinstance(value, list) and value else value
            if newest is not None and newest != []:
                line += formats.get(key, _FORMAT).format(key, newest)
        print(line, flush=True)


DLNestPlugin = SimpleCMDVisualize
