"""The kinds of mirrors: their libraries, settings and folders in a package."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from roost.base.errors import ConfigError
from roost.config.sections.mirrors import (
    CsvSettings,
    MirrorSettings,
    MlflowSettings,
    TensorBoardSettings,
    WandbSettings,
)
from roost.config.settings import Where
from roost.train.mirrors.sink import RunIdentity, Sink

MIRRORS_FOLDER = "mirrors"
"""The folder in the package with the position of each mirror (``<kind>.json``) and the files of W&B and
MLflow."""


def _csv(package: Path, settings: CsvSettings, identity: RunIdentity) -> Sink:
    from roost.train.mirrors.csv_sink import CsvSink

    path = package / settings.file
    return CsvSink(path, below=_below(path, package))


def _tensorboard(package: Path, settings: TensorBoardSettings, identity: RunIdentity) -> Sink:
    from roost.train.mirrors.tensorboard_sink import TensorBoardSink

    folder = package / settings.folder
    return TensorBoardSink(folder, below=_below(folder, package))


def _wandb(package: Path, settings: WandbSettings, identity: RunIdentity) -> Sink:
    from roost.train.mirrors.wandb_sink import WandbSink

    return WandbSink(settings, identity, package / MIRRORS_FOLDER, below=package)


def _mlflow(package: Path, settings: MlflowSettings, identity: RunIdentity) -> Sink:
    from roost.train.mirrors.mlflow_sink import MlflowSink

    return MlflowSink(settings, identity, package / MIRRORS_FOLDER / "mlflow", below=package)


def _below(path: Path, package: Path) -> Path | None:
    return package if path.is_relative_to(package) else None


class MirrorKind(NamedTuple):
    """A kind of mirror."""

    library: str
    """The library that must be installed; empty if none."""
    settings: type
    make_sink: Callable[[Path, Any, RunIdentity], Sink]
    """Makes a sink that is not connected yet, from the package, the settings and the identity of the run."""


KINDS = {
    "csv": MirrorKind("", CsvSettings, _csv),
    "tensorboard": MirrorKind("tensorboard", TensorBoardSettings, _tensorboard),
    "wandb": MirrorKind("wandb", WandbSettings, _wandb),
    "mlflow": MirrorKind("mlflow", MlflowSettings, _mlflow),
}


def enabled_mirrors(settings: MirrorSettings, *, where: Where = lambda key: None) -> dict[str, Any]:
    """Returns the settings of each enabled kind. No library is imported.

    Args:
        settings: The section ``mirrors``.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A library is not installed.
    """
    found: dict[str, Any] = {}
    for name, kind in KINDS.items():
        given = getattr(settings, name)
        if given is not False:
            found[name] = kind.settings() if given is True else given
            require_library(kind.library, f"mirrors.{name}", where)
    return found


def require_library(
    library: str, setting: str, where: Where = lambda key: None, *, extra: str = "loggers"
) -> None:
    """Makes sure that a library of one of roost's extras is installed.

    Raises:
        ConfigError: It is not installed.
    """
    if library and find_spec(library) is None:
        fix = f"pip install 'roost[{extra}]'"
        raise ConfigError(f"{library} is not installed", setting=setting, where=where(setting), fix=fix)
