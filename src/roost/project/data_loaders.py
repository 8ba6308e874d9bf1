"""Builds the batches of each split from `roost.Data` and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch.utils.data import DistributedSampler, IterableDataset

from roost.base.errors import ConfigError, ContractError
from roost.base.interval import parse_duration
from roost.base.text.suggestions import did_you_mean
from roost.config.sections.data import BATCH_SIZE, DataSettings
from roost.config.settings import Settings, Where
from roost.project.batch_plans import (
    batch_limits,
    build_plan,
    describe_set,
    has_batch_of_each,
    limit_batches,
    name_set_in_errors,
    no_location,
    split_settings,
)
from roost.project.contract import Data
from roost.train.accelerators.registry import accelerator_of
from roost.train.data.batch_function import Sampled
from roost.train.data.batches import Batches
from roost.train.data.concatenated_set import concatenate
from roost.train.data.external_loader import ExternalLoader, is_external_loader
from roost.train.data.fetch import Collate
from roost.train.data.loader import Loader
from roost.train.data.plans.rank_shards import ShardedPlan
from roost.train.data.sequential_batches import SequentialBatches
from roost.train.data.stream import Stream
from roost.train.data.workers.stream_shard import is_stateful
from roost.train.distributed.ranks import ALONE, Ranks

Kind = Literal["indexed", "iterable", "sampled", "foreign"]

_SPLITS = ("train", "valid", "test")


def named_sets(data: Data) -> dict[str, Any]:
    """Returns the sets by name: train, valid, test; ``train/NAME`` or ``valid/NAME`` where there are
    several."""
    found = {}
    for split, given in zip(_SPLITS, (data.train, data.valid, data.test), strict=True):
        named = given if isinstance(given, Mapping) else {"": given}
        for name, dataset in named.items():
            if dataset is not None:
                found[f"{split}/{name}" if name else split] = dataset
    return found


def set_kind(dataset: Any) -> Kind | None:
    """Returns how batches are made from a set (see `Data`); None if it is not a set."""
    if isinstance(dataset, type):  # a class that was not called has the methods of its objects
        return None
    if isinstance(dataset, Sampled):
        return "sampled"
    if is_external_loader(dataset):
        return "foreign"
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        # torch's class has an index in name only.
        return "iterable" if isinstance(dataset, IterableDataset) else "indexed"
    return "iterable" if hasattr(dataset, "__iter__") else None


def format_set_size(dataset: Any) -> str:
    """Returns ``1,000``, or the name of the set's type if its number of samples is unknown."""
    return f"{len(dataset):,}" if set_kind(dataset) == "indexed" else type(dataset).__name__


def build_loaders(
    data: Data,
    settings: Settings,
    *,
    device: torch.device,
    batches_per_step: int = 1,
    ranks: Ranks = ALONE,
    where: Where = no_location,
) -> dict[str, Batches]:
    """Returns the batches of a run by name: ``train``, and each set that is evaluated.

    Args:
        data: The sets.
        settings: The settings of the run.
        device: The device that batches are copied to.
        batches_per_step: Micro-batches of a step.
        ranks: The ranks that train together: each gets its share of each training batch. Sets without
            indices, and evaluations, are read whole by every rank.
        where: Gives the location of a setting, for messages.

    Raises:
        ConfigError: A setting does not fit the sets.
        ContractError: A set lacks an attribute that a setting needs.
    """
    found = named_sets(data)
    _check_shared_state(found)
    _refuse_samplers_of_ranks(found)
    several = {name.partition("/")[2]: one for name, one in found.items() if name.startswith("train/")}
    _check_mix(several, settings.data, where)
    train = several or found["train"]
    first = _batches(train, data, settings, "train", device, batches_per_step, where)
    if isinstance(first, Loader) and ranks.are_several:
        first = first.with_plan(ShardedPlan(first.plan, ranks.rank, ranks.world_size))
    made = {"train": first}
    for name, dataset in found.items():
        if name.partition("/")[0] != "train":
            made[name] = _batches(dataset, data, settings, name, device, None, where)
    return made


def evaluation_loader(
    data: Data, settings: Settings, name: str, *, device: torch.device, where: Where = no_location
) -> Batches:
    """Returns the batches of the set ``name`` of `named_sets`, as for an evaluation. See `build_loaders`."""
    return _batches(named_sets(data)[name], data, settings, name, device, None, where)


def loader_for_set(
    dataset: Any,
    data: Data,
    settings: Settings,
    name: str = "predict",
    *,
    device: torch.device,
    where: Where = no_location,
) -> Batches:
    """Returns the batches of a set that is not in `named_sets`, as for an evaluation. See `build_loaders`."""
    return _batches(dataset, data, settings, name, device, None, where)


def _batches(
    dataset: Any,
    data: Data,
    settings: Settings,
    name: str,
    device: torch.device,
    batches_per_step: int | None,
    where: Where,
) -> Batches:
    """Returns the batches of one set; ``batches_per_step`` is None for an evaluation."""
    training = batches_per_step is not None
    if not isinstance(dataset, Mapping) and set_kind(dataset) != "indexed":
        return _sequential_batches(dataset, data, settings, name, device, batches_per_step, where)
    plan = build_plan(
        dataset, settings, name, training=training, batches_per_step=batches_per_step or 1, where=where
    )
    if isinstance(dataset, Mapping) and not has_batch_of_each(settings):
        dataset = concatenate(dataset)
    workers = _num_workers(settings.data, name)
    return Loader(
        dataset,
        plan=plan,
        collate=collate_of(data, name),
        num_workers=None if workers == "auto" else workers,
        seed=settings.seed,
        pin_memory=accelerator_of(device).copies_concurrently,
        prefetch=settings.data.prefetch,
        timeout_seconds=_timeout_seconds(settings.data),
        name=describe_set(name),
    )


def _check_mix(several: Mapping[str, Any], data: DataSettings, where: Where) -> None:
    if not several and data.mix is not None:
        raise ConfigError(
            "needs several training sets, and there is one",
            setting="data.mix",
            received=data.mix.mode,
            where=where("data.mix.mode"),
            fix="return roost.Data(train={name: set, ...}), or leave it out",
        )
    # The rule of SpeeChain: every batch has samples of each set, and no sample is repeated before the
    # others of its set. Another rule trains another model, so the default is printed.
    if len(several) > 1 and data.mix is None:
        names = ", ".join(several)
        said = (
            "a batch of each at once, an epoch as long as the shortest; data.mix.mode: min_size is the same"
        )
        print(f"several training sets ({names}) and no data.mix: {said}", flush=True)


# ---- sets without indices --------------------------------------------------------------------------------


def _check_shared_state(found: Mapping[str, Any]) -> None:
    """Raises a ContractError if an evaluation would iterate over the object that holds the training's
    position."""
    train = found.get("train")
    # An evaluation copies the state of a Sampled, unless that state has methods of its own.
    if not is_stateful(train.state if isinstance(train, Sampled) else train):
        return
    for name, dataset in found.items():
        if name != "train" and dataset is train:
            raise ContractError(
                f"{describe_set(name)} is the same object as the training set ({type(train).__name__}): "
                "it has one state, and each evaluation would restart the training data",
                fix=f"give train and {name} separate objects",
            )


def _refuse_samplers_of_ranks(found: Mapping[str, Any]) -> None:
    """Raises a ContractError for a loader that already gives each rank its own samples: roost divides each
    batch among the ranks again, so most samples would never be used."""
    for name, dataset in found.items():
        batches = getattr(dataset, "batch_sampler", None)
        for one in (getattr(dataset, "sampler", None), batches, getattr(batches, "sampler", None)):
            if isinstance(one, DistributedSampler) and one.num_replicas > 1:
                raise ContractError(
                    f"{describe_set(name)} has a DistributedSampler of {one.num_replicas} ranks, and roost "
                    "itself divides each batch among the ranks",
                    fix="return the set itself, or a loader without that sampler",
                )


def _sequential_batches(
    dataset: Any,
    data: Data,
    settings: Settings,
    name: str,
    device: torch.device,
    batches_per_step: int | None,
    where: Where,
) -> Batches:
    asked, kind, limits = settings.data, set_kind(dataset), batch_limits(settings.data, name)
    _warn_ignored_settings(data, asked, name, kind, training=batches_per_step is not None)
    num_batches = None
    if batches_per_step is not None and asked.steps_per_epoch is not None:
        num_batches = asked.steps_per_epoch * batches_per_step
    made: SequentialBatches
    with name_set_in_errors(name, limits, where):
        if kind == "foreign":
            made = ExternalLoader(
                dataset, num_batches=num_batches, seed=settings.seed, name=describe_set(name)
            )
        else:
            workers = _num_workers(asked, name)
            made = Stream(
                dataset,
                batch_size=limits.num_samples or BATCH_SIZE,
                num_batches=num_batches,
                collate=collate_of(data, name),
                drop_last=batches_per_step is not None and asked.drop_last,
                # The number of workers decides the order of a stream, and a measured number may differ next
                # time.
                num_workers=0 if workers == "auto" else workers,
                seed=settings.seed,
                pin_memory=accelerator_of(device).copies_concurrently,
                prefetch=asked.prefetch,
                timeout_seconds=_timeout_seconds(asked),
                name=describe_set(name),
            )
    made = _limited(made, asked, name, training=batches_per_step is not None, where=where)
    if batches_per_step is not None and made.num_batches is None:
        raise ConfigError(
            f"is needed: {describe_set(name)} ({type(dataset).__name__}) has no known number of batches",
            setting="data.steps_per_epoch",
            received=None,
            fix="set it to the steps of an epoch, for example 1000",
        )
    return made


def _limited(
    made: SequentialBatches, data: DataSettings, name: str, *, training: bool, where: Where
) -> SequentialBatches:
    """Returns the batches cut to the limit of their split."""
    split = name.partition("/")[0]
    key = f"limit_{split}_batches"
    limit = getattr(data, key, None) if training or split != "train" else None
    if limit is None:
        return made
    if made.num_batches is None and isinstance(limit, float):
        raise ConfigError(
            f"is a share of an unknown number: {made.display_name} has no len()",
            setting=f"data.{key}",
            received=limit,
            where=where(f"data.{key}"),
            fix="give a whole number of batches" + (", or data.steps_per_epoch" if training else ""),
        )
    num_batches = limit if made.num_batches is None else limit_batches(limit, made.num_batches)
    return made.excerpt([range(num_batches)])


def _warn_ignored_settings(
    data: Data, asked: DataSettings, name: str, kind: Kind | None, *, training: bool
) -> None:
    limits = batch_limits(asked, name)
    orders = {
        "data.shuffle": not asked.shuffle and kind == "foreign",
        "data.weighted": asked.weighted,
        "data.sort_by_length": asked.sort_by_length is not None,
    }
    own = split_settings(asked, name)
    sizes = {
        limits.samples_key: kind != "iterable" and limits.is_asked_for,
        limits.tokens_key: limits.max_tokens is not None,
        "data.drop_last": training and kind != "iterable" and asked.drop_last,
        "collate": kind != "iterable" and collate_of(data, name) is not None,
        "data.num_workers": kind == "foreign" and own is None and asked.num_workers not in ("auto", 0),
    }
    ignored = [key for key, is_set in {**(orders if training else {}), **sizes}.items() if is_set]
    if ignored:
        why = {
            "foreign": "is an external loader, which makes its own batches",
            "sampled": "makes whole batches itself",
        }.get(kind or "", "has no indices: its samples are used in the order they come")
        print(f"warning: {', '.join(ignored)}: ignored, because {describe_set(name)} {why}", flush=True)


# ---- arguments of loaders --------------------------------------------------------------------------------


def collate_of(data: Data, name: str) -> Collate | None:
    """Returns the collate function of a set: its own, otherwise that of its split."""
    if not isinstance(data.collate, Mapping):
        return data.collate
    return data.collate.get(name, data.collate.get(name.partition("/")[0]))


def check_collate(data: Data) -> None:
    """Checks that each entry of `Data.collate` is a function and names an existing set.

    Raises:
        ContractError: An entry is not; the message names it.
    """
    given = data.collate if isinstance(data.collate, Mapping) else {"": data.collate}
    known = [
        *_SPLITS,
        "predict",
        *(name for name in named_sets(data) if name.startswith(("valid/", "test/"))),
    ]
    for name, one in given.items():
        if name and name not in known:
            raise ContractError(
                f"collate is for {name!r}, and there is no such set",
                received=list(given),
                fix=f"{did_you_mean(str(name), known)}use one of {', '.join(known)}",
            )
        if one is not None and not callable(one):
            raise ContractError(
                f"collate{f' for {name}' if name else ''} is not a function",
                received=one,
                fix="give a function that takes a list of samples and returns a batch",
            )


def _num_workers(data: DataSettings, name: str) -> int | Literal["auto"]:
    own = split_settings(data, name)
    return data.num_workers if own is None or own.num_workers is None else own.num_workers


def _timeout_seconds(data: DataSettings) -> float:
    given = data.loader_timeout
    return parse_duration(given, setting="data.loader_timeout") if isinstance(given, str) else float(given)
