"""The data of a prediction: a set of the project, a set that `Dataset.predict` opens, or a file of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from roost.base.errors import ContractError, NotFound
from roost.base.text.suggestions import did_you_mean
from roost.base.text.typed_path import typed_path
from roost.config.sections.data import DataSettings, SplitSettings
from roost.config.settings import Settings, Where
from roost.project import data_loaders
from roost.project.contract import Data, Dataset
from roost.project.yaml.yaml_project import ConfiguredDataset
from roost.train.data.arrays import Arrays
from roost.train.data.batches import Batches

FILE_SUFFIXES = (".npy", ".npz", ".csv")
_LOADER_NAME = "predict"


class PredictionSource(NamedTuple):
    """The batches to predict."""

    name: str
    """Name of the set, or the text that the user typed."""
    batches: Batches
    num_samples: int | None
    """None if it is not known."""


def open_source(
    typed: str,
    dataset: Dataset,
    data: Data,
    settings: Settings,
    *,
    folder: Path,
    device: torch.device,
    where: Where,
) -> PredictionSource:
    """Returns the batches of a source: every sample once, in the order of the set.

    Args:
        typed: The name of a set, a text that `Dataset.predict` understands, or a file of arrays.
        dataset: The project's Dataset.
        data: Its data.
        settings: Settings of the run.
        folder: Base of a relative path.
        device: Device of the batches.
        where: Where settings were set, for messages.

    Raises:
        NotFound: The text is none of these.
        ContractError: `Dataset.predict` returns no set; or the file has no usable arrays.
        ConfigError: A setting does not fit the set.
    """
    sets = data_loaders.named_sets(data)
    if typed in sets:
        made = data_loaders.evaluation_loader(data, settings, typed, device=device, where=where)
        return PredictionSource(typed, made, _length(sets[typed]))
    found = _open_set(typed, dataset, folder, list(sets))
    made = data_loaders.loader_for_set(found, data, settings, _LOADER_NAME, device=device, where=where)
    return PredictionSource(typed, made, _length(found))


def _length(dataset: Any) -> int | None:
    return len(dataset) if data_loaders.set_kind(dataset) == "indexed" else None


def _open_set(typed: str, dataset: Dataset, folder: Path, sets: list[str]) -> Any:
    path = folder / typed_path(typed)
    if type(dataset).predict is Dataset.predict:
        if path.suffix not in FILE_SUFFIXES:
            raise _unknown(typed, dataset, sets)
        if not path.is_file():
            raise NotFound("there is no such file", setting="--data", received=str(path))
        return Arrays(str(path))
    found = dataset.predict(str(path) if path.exists() else typed)
    if data_loaders.set_kind(found) is None:
        raise ContractError(
            f"{type(dataset).__name__}.predict() must return a set",
            received=type(found).__name__ if found is not None else None,
            fix="return something with len() and [index], or an iterable",
        )
    return found


def _unknown(typed: str, dataset: Dataset, sets: list[str]) -> NotFound:
    home = type(dataset).__name__
    if isinstance(dataset, ConfiguredDataset):
        home = "a Dataset class of your own (dataset: Dataset.py:Dataset) instead of the section"
    files = ", ".join(FILE_SUFFIXES)
    return NotFound(
        "is neither a set nor a file of arrays",
        setting="--data",
        received=typed,
        fix=f"{did_you_mean(typed, sets)}name a set ({', '.join(sets)}) or a file ({files}); "
        f"or write `def predict(self, source)` in {home}, which returns the set",
    )


def without_limits(settings: Settings, *, batch_size: int | None, num_workers: int | None) -> Settings:
    """Returns the settings without limits, so that every sample is predicted, with the given batch size and
    workers."""
    data = settings.data
    changed: dict[str, Any] = {f"limit_{split}_batches": None for split in ("train", "valid", "test")}
    for split in ("valid", "test"):
        changed[split] = _override_split(getattr(data, split), batch_size, num_workers)
    if batch_size is not None:
        changed |= {"batch_size": batch_size, "max_tokens": None, "mix": None}
    if num_workers is not None:
        changed["num_workers"] = num_workers
    return msgspec.structs.replace(settings, data=msgspec.structs.replace(data, **changed))


def _override_split(split: SplitSettings, batch_size: int | None, num_workers: int | None) -> SplitSettings:
    if batch_size is not None:
        split = msgspec.structs.replace(split, batch_size=batch_size, max_tokens=None)
    return split if num_workers is None else msgspec.structs.replace(split, num_workers=num_workers)


def ignored_limit(data: DataSettings, name: str) -> str | None:
    """Returns the setting that would leave out samples of a set; None if there is none."""
    key = f"limit_{name.partition('/')[0]}_batches"
    return f"data.{key}" if getattr(data, key, None) is not None else None
