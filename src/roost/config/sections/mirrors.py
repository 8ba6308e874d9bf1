"""``mirrors``: copies of a run's rows and media in other tools. The package's records remain the truth."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from roost.config.sections.field_types import help_text


class TensorBoardSettings(Struct, frozen=True, kw_only=True):
    """``mirrors.tensorboard``."""

    folder: Annotated[str, help_text("folder of the event files, below the package")] = "tensorboard"


class CsvSettings(Struct, frozen=True, kw_only=True):
    """``mirrors.csv``."""

    file: Annotated[str, help_text("file of the table, below the package")] = "metrics.csv"


class WandbSettings(Struct, frozen=True, kw_only=True):
    """``mirrors.wandb``."""

    project: Annotated[
        str | None, help_text("project at W&B; by default the name of the project's folder")
    ] = None
    entity: Annotated[str | None, help_text("user or team at W&B")] = None
    name: Annotated[str | None, help_text("name of the run; that of the package if left out")] = None
    group: Annotated[str | None, help_text("group of the run at W&B")] = None
    tags: Annotated[list[str], help_text("tags of the run")] = []
    mode: Annotated[
        Literal["offline", "online"], help_text("offline: files in the package, for `wandb sync`")
    ] = "offline"


class MlflowSettings(Struct, frozen=True, kw_only=True):
    """``mirrors.mlflow``."""

    tracking_uri: Annotated[
        str | None,
        help_text("server address; by default MLFLOW_TRACKING_URI, else a file in the package"),
    ] = None
    experiment: Annotated[
        str | None, help_text("experiment; by default the name of the project's folder")
    ] = None
    name: Annotated[str | None, help_text("name of the run; that of the package if left out")] = None


class MirrorSettings(Struct, frozen=True, kw_only=True):
    """``mirrors``; each mirror is true, or a section."""

    tensorboard: Annotated[bool | TensorBoardSettings, help_text("event files for TensorBoard")] = False
    csv: Annotated[bool | CsvSettings, help_text("a table of all rows")] = False
    wandb: Annotated[bool | WandbSettings, help_text("a run at Weights & Biases, or the files of one")] = (
        False
    )
    mlflow: Annotated[bool | MlflowSettings, help_text("a run of MLflow")] = False
