"""The plugin AutoTensorboardScalar: the newest value of each list of the log as a TensorBoard scalar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from roost.project.dlnest.plugins.plugin_base import DLNestPluginBase


class AutoTensorboardScalar(DLNestPluginBase):
    """Writes scalars into the package when the runner visualizes, and at the end of the training, on rank 0.
    The step of a scalar is its place in its list."""

    _NAME = "AutoTensorboardScalar"

    def runnerInit(self: Any, args: dict[str, Any], datasetInfo: Any = None) -> None:
        """Opens the file of scalars."""
        if self._status.rank in (-1, 0) and not self._status.isAnalyzing():
            from torch.utils.tensorboard import SummaryWriter  # an extra

            self._tensorboard_writer = SummaryWriter(".")
            self._tensorboard_lengths: dict[str, int] = {}

    def visualize(self: Any, log: dict[str, Any], iter: int, epoch: int) -> None:
        """Writes the newest value of each list of numbers."""
        writer = getattr(self, "_tensorboard_writer", None)
        if writer is not None:
            for name, values in _lists(log, ""):
                if _is_number(values[-1]):
                    writer.add_scalar(name, float(values[-1]), len(values) - 1)
                    self._tensorboard_lengths[name] = len(values)

    def ATrain(self: Any) -> None:
        """Writes the values that came after the last `visualize`, such as those of the last validation, and
        closes the file; called on the life cycle."""
        writer = getattr(self.runner, "_tensorboard_writer", None)
        if writer is not None:
            project = getattr(self, "taskProcess", None)  # a constructor of the project need not keep it
            for name, values in _lists(project.log if project is not None else {}, ""):
                if _is_number(values[-1]) and self.runner._tensorboard_lengths.get(name) != len(values):
                    writer.add_scalar(name, float(values[-1]), len(values) - 1)
            writer.close()


DLNestPlugin = AutoTensorboardScalar


def _lists(log: Mapping[Any, Any], outer: str) -> Iterator[tuple[str, list[Any]]]:
    """Yields the lists of a log that are not empty; the names of nested ones are joined by slashes."""
    for name, value in log.items():
        if isinstance(value, list) and value:
            yield f"{outer}{name}", value
        elif isinstance(value, Mapping):
            yield from _lists(value, f"{outer}{name}/")


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        return False
    return not isinstance(value, str)
