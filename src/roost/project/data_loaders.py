"""From `roost.Data` and the settings to the batches of each split."""

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
    name_set_in_errors,
    has_batch_of_each,
    describe_set,
    limit_batches,
    batch_limits,
    no_location,
    split_settings,
    build_plan,
)
from roost.project.contract import Data
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
    """The sets by name: train, valid, test; ``train/NAME`` or ``valid/NAME`` where there are several."""
    found = {}
    for split, given in zip(_SPLITS, (data.train, data.valid, data.test), strict=True):
        named = given if isinstance(given, Mapping) else {"": given}
        for name, dataset in named.items():
            if dataset is not None:
                found[f"{split}/{name}" if name else split] = dataset
    return found


def set_kind(dataset: Any) -> Kind | None:
    """How batches come out of a set (see `Data`); None if they cannot."""
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
    """``1,000``, or what it is where nobody knows how many samples it has."""
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
    """The batches of a run: those of training as ``train``, and of each set that is evaluated by its name.

    Args:
        data: The sets.
        settings: The run's.
        device: Where the batches will go.
        batches_per_step: Micro-batches of a step.
        ranks: Who trains together: each has its share of each batch of training. Of what has no indices, and
            of an evaluation, each draws all.
        where: Where a setting was set, for messages.

    Raises:
        ConfigError: A setting does not fit the sets.
        ContractError: A set lacks what a setting asks of it.
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
    """The batches of the set ``name``, one of `named_sets`, as an evaluation draws them. See `build_loaders`."""
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
    """The batches of a set that is none of `named_sets`, as an evaluation draws them. See `build_loaders`."""
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
    """``batches_per_step`` is None for an evaluation."""
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
        pin_memory=device.type == "cuda",
        prefetch=settings.data.prefetch,
        timeout_seconds=_timeout_seconds(settings.data),
        name=describe_set(name),
    )


def _check_mix(several: Mapping[str, Any], data: DataSettings, where: Where) -> None:
    if not several and data.mix is not None:
        raise ConfigError(
            "is for several training sets, and there is one",
            setting="data.mix",
            received=data.mix.mode,
            where=where("data.mix.mode"),
            fix="return roost.Data(train={name: set, ...}), or leave it out",
        )
    # It is the rule of document 003, every batch holds some of each set, and no sample comes again before the
    # others of its set. But it is a choice, and another one trains another model: so it is said.
    if len(several) > 1 and data.mix is None:
        names = ", ".join(several)
        said = (
            "a batch of each at once, an epoch as long as the shortest; data.mix.mode: min_size says the same"
        )
        print(f"several training sets ({names}) and no data.mix: {said}", flush=True)


# ---- what has no indices --------------------------------------------------------------------------------


def _check_shared_state(found: Mapping[str, Any]) -> None:
    """That no evaluation goes through the very object with whose state the training goes on."""
    train = found.get("train")
    # The state of a Sampled is copied for an evaluation, but for one with methods of its own.
    if not is_stateful(train.state if isinstance(train, Sampled) else train):
        return
    for name, dataset in found.items():
        if name != "train" and dataset is train:
            raise ContractError(
                f"{describe_set(name)} is the object that is trained on ({type(train).__name__}): its state is "
                "one, and each evaluation would put the training back to the beginning",
                fix=f"give train and {name} an object each",
            )


def _refuse_samplers_of_ranks(found: Mapping[str, Any]) -> None:
    """A loader that gives each rank samples of its own: roost shares out what every rank draws whole, so most
    of them would never be seen."""
    for name, dataset in found.items():
        batches = getattr(dataset, "batch_sampler", None)
        for one in (getattr(dataset, "sampler", None), batches, getattr(batches, "sampler", None)):
            if isinstance(one, DistributedSampler) and one.num_replicas > 1:
                raise ContractError(
                    f"{describe_set(name)} has a DistributedSampler of {one.num_replicas} ranks, and roost "
                    " shares out each batch among ranks by itself",
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
            made = ExternalLoader(dataset, num_batches=num_batches, seed=settings.seed, name=describe_set(name))
        else:
            workers = _num_workers(asked, name)
            made = Stream(
                dataset,
                batch_size=limits.num_samples or BATCH_SIZE,
                num_batches=num_batches,
                collate=collate_of(data, name),
                drop_last=batches_per_step is not None and asked.drop_last,
                # Workers decide on the order of a stream, and a measurement may come out otherwise next time.
                num_workers=0 if workers == "auto" else workers,
                seed=settings.seed,
                pin_memory=device.type == "cuda",
                prefetch=asked.prefetch,
                timeout_seconds=_timeout_seconds(asked),
                name=describe_set(name),
            )
    made = _limited(made, asked, name, training=batches_per_step is not None, where=where)
    if batches_per_step is not None and made.num_batches is None:
        raise ConfigError(
            f"is needed: {describe_set(name)} ({type(dataset).__name__}) does not say how many batches it has",
            setting="data.steps_per_epoch",
            received=None,
            fix="set it to the steps of an epoch, for example 1000",
        )
    return made


def _limited(
    made: SequentialBatches, data: DataSettings, name: str, *, training: bool, where: Where
) -> SequentialBatches:
    """As long as the limit of its split."""
    split = name.partition("/")[0]
    key = f"limit_{split}_batches"
    limit = getattr(data, key, None) if training or split != "train" else None
    if limit is None:
        return made
    if made.num_batches is None and isinstance(limit, float):
        raise ConfigError(
            f"is a share of a number that nobody knows: {made.display_name} has no len()",
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
            "foreign": "is somebody else's loader, which makes its batches by itself",
            "sampled": "makes whole batches by itself",
        }.get(kind or "", "has no indices: its samples are taken as they come")
        print(f"warning: {', '.join(ignored)}: ignored, for {describe_set(name)} {why}", flush=True)


# ---- what the parts take --------------------------------------------------------------------------------


def collate_of(data: Data, name: str) -> Collate | None:
    """What joins the samples of a set: its own, else that of its split."""
    if not isinstance(data.collate, Mapping):
        return data.collate
    return data.collate.get(name, data.collate.get(name.partition("/")[0]))


def check_collate(data: Data) -> None:
    """That each function in `Data.collate` is one, and is for something.

    Raises:
        ContractError: Says which is not.
    """
    given = data.collate if isinstance(data.collate, Mapping) else {"": data.collate}
    known = [*_SPLITS, "predict", *(name for name in named_sets(data) if name.startswith(("valid/", "test/")))]
    for name, one in given.items():
        if name and name not in known:
            raise ContractError(
                f"collate is for {name!r}, and there is no such set",
                received=list(given),
                fix=f"{did_you_mean(str(name), known)}it may be for {', '.join(known)}",
            )
        if one is not None and not callable(one):
            raise ContractError(
                f"collate{f' for {name}' if name else ''} is no function",
                received=one,
                fix="give a function that takes a list of samples and returns a batch",
            )


def _num_workers(data: DataSettings, name: str) -> int | Literal["auto"]:
    own = split_settings(data, name)
    return data.num_workers if own is None or own.num_workers is None else own.num_workers


def _timeout_seconds(data: DataSettings) -> float:
    given = data.loader_timeout
    return parse_duration(given, setting="data.loader_timeout") if isinstance(given, str) else float(given)
