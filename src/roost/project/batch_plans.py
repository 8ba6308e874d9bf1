"""The batch plan of a set: its order and its batches, from the settings alone."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from roost.base.errors import FIX_SEPARATOR, ConfigError, ContractError
from roost.base.text.suggestions import did_you_mean
from roost.config.sections.data import BATCH_SIZE, DataSettings, MixSettings, SplitSettings
from roost.config.settings import Settings, Where
from roost.train.data.plans.batch_plan import BatchPlan, Plan
from roost.train.data.plans.dataset_mixes import ChainedPlan, CombinedPlan, MixedPlan
from roost.train.data.plans.length_batches import LengthPlan
from roost.train.data.plans.virtual_epochs import LimitedEpochs, VirtualEpochs
from roost.train.data.plans.weighted_sampling import WeightedPlan
from roost.train.step import seeding


def no_location(key: str) -> str | None:
    """The location of a setting that comes from no file: None."""
    return None


def describe_set(name: str) -> str:
    """Returns a set's name for messages: ``the validation set NAME`` for ``valid/NAME``."""
    split, _, own = name.partition("/")
    kind = {"train": "training", "valid": "validation", "predict": "prediction"}.get(split, split)
    return f"the {kind} set {own}".rstrip()


def build_plan(
    dataset: Any,
    settings: Settings,
    name: str = "train",
    *,
    training: bool = False,
    batches_per_step: int = 1,
    where: Where = no_location,
) -> Plan:
    """Returns the plan of a set: which samples are in which batch, decided by the settings alone.

    ```
    evaluation  the set's own order, in batches of a size or of a budget of tokens
    training    several sets    data.mix: a batch of each, or one set after the other, or all in each batch
                by weight       data.weighted
                by length       data.sort_by_length, data.max_tokens
                else            shuffled, or in the set's order
    then        data.steps_per_epoch cuts other epochs, data.limit_..._batches takes the first of each
    ```

    Args:
        dataset: A map-style set; for training also several by name.
        settings: The settings of the run.
        name: The set's name: train, valid, test or ``valid/NAME``.
        training: Whether the set is trained on; otherwise each sample comes once, in the set's order.
        batches_per_step: Micro-batches of a step; an epoch of ``data.steps_per_epoch`` has so many for each
            step.
        where: Gives the location of a setting, for messages.

    Raises:
        ConfigError: A setting does not fit the set.
        ContractError: The set has no lengths or weights, and a setting asks for them.
    """
    data, split = settings.data, name.partition("/")[0]
    if isinstance(dataset, Mapping):
        plan = _several_sets_plan(dataset, settings, where)
    else:
        plan = _single_set_plan(dataset, settings, name, training=training, seed=settings.seed, where=where)
    if training and data.steps_per_epoch is not None:
        plan = VirtualEpochs(plan, data.steps_per_epoch * batches_per_step)
    if training or split != "train":
        limit = getattr(data, f"limit_{split}_batches", None)  # there is none for predictions
        plan = plan if limit is None else LimitedEpochs(plan, limit_batches(limit, plan.num_batches))
    return plan


def limit_batches(limit: float, num_batches: int) -> int:
    """Returns the number of batches under a limit: ``limit`` itself, or as a float that share of
    ``num_batches``, rounded; at least one."""
    return min(limit, num_batches) if isinstance(limit, int) else max(1, round(limit * num_batches))


def split_settings(data: DataSettings, name: str) -> SplitSettings | None:
    """Returns the settings by which the split of a set differs from training; None without any."""
    return {"valid": data.valid, "test": data.test}.get(name.partition("/")[0])


class BatchLimits(NamedTuple):
    """The limits on a batch of one set; None is no limit."""

    num_samples: int | None
    max_tokens: int | None
    samples_key: str
    """The dotted key of the setting behind ``num_samples``."""
    tokens_key: str
    is_asked_for: bool
    """Whether ``num_samples`` was set; otherwise it is the default."""


def batch_limits(data: DataSettings, name: str) -> BatchLimits:
    """Returns the limits on a batch of a set. A split with a limit of its own takes none from training."""
    split, _, own_name = name.partition("/")
    own = split_settings(data, name)
    is_own = own is not None and (own.batch_size or own.max_tokens)
    chosen, key = (own, f"data.{split}") if own is not None and is_own else (data, "data")
    num_samples, samples_key = chosen.batch_size, f"{key}.batch_size"
    if split == "train" and data.mix is not None and own_name in data.mix.batch_sizes:
        num_samples, samples_key = data.mix.batch_sizes[own_name], f"data.mix.batch_sizes.{own_name}"
    most = num_samples or (None if chosen.max_tokens else BATCH_SIZE)
    return BatchLimits(most, chosen.max_tokens, samples_key, f"{key}.max_tokens", num_samples is not None)


def _single_set_plan(
    dataset: Any, settings: Settings, name: str, *, training: bool, seed: int, where: Where
) -> Plan:
    data, limits = settings.data, batch_limits(settings.data, name)
    batch_size, max_tokens = limits.num_samples, limits.max_tokens
    sort = data.sort_by_length if training else None
    drop_last, size = training and data.drop_last, len(dataset)
    with name_set_in_errors(name, limits, where):
        if training and data.weighted:
            weights = _required_column(dataset, "weights", name, ("data.weighted", True), where)
            return WeightedPlan(
                weights, batch_size or BATCH_SIZE, seed=seed, drop_last=drop_last, set_size=size
            )
        if sort is None and max_tokens is None:
            shuffle = training and data.shuffle
            return BatchPlan(size, batch_size or BATCH_SIZE, seed=seed, shuffle=shuffle, drop_last=drop_last)
        asking = (limits.tokens_key, max_tokens) if sort is None else ("data.sort_by_length", sort)
        return LengthPlan(
            _required_column(dataset, "lengths", name, asking, where),
            batch_size=batch_size,
            max_tokens=max_tokens,
            count_padding=data.count_padding,
            sort=sort,
            shuffle=training and data.shuffle,
            seed=seed,
            drop_last=drop_last,
            set_size=size,
        )


# ---- several sets ---------------------------------------------------------------------------------------


def has_batch_of_each(settings: Settings) -> bool:
    """Whether a batch is a mapping with a batch of each training set; otherwise the sets are drawn from as
    one."""
    return (settings.data.mix or MixSettings()).mode in ("min_size", "max_size_cycle")


def _several_sets_plan(sets: Mapping[str, Any], settings: Settings, where: Where) -> Plan:
    mix = settings.data.mix or MixSettings()
    _check_names(mix.weights, sets, "data.mix.weights", where)
    _check_names(mix.batch_sizes, sets, "data.mix.batch_sizes", where)
    if mix.mode == "weighted":
        return _weighted_plan(sets, settings, mix, where)
    plans = {}
    for name, dataset in sets.items():
        # A seed of its own: else two sets of one size would be shuffled alike, always the same pairs.
        seed = seeding.mix(settings.seed, "set", name)
        plans[name] = _single_set_plan(
            dataset, settings, f"train/{name}", training=True, seed=seed, where=where
        )
    if mix.mode == "sequential":
        offsets = itertools.accumulate((len(one) for one in sets.values()), initial=0)
        return ChainedPlan(list(zip(plans.values(), offsets, strict=False)))
    return CombinedPlan(plans, mix.mode)


def _weighted_plan(sets: Mapping[str, Any], settings: Settings, mix: MixSettings, where: Where) -> Plan:
    data = settings.data
    if missing := [name for name in sets if name not in mix.weights]:
        raise ConfigError(
            f"the training set {missing[0]} has no weight",
            setting="data.mix.weights",
            received=mix.weights,
            where=where(f"data.mix.weights.{next(iter(mix.weights), '')}"),
            fix="give each set its weight; 0 leaves one out",
        )
    with name_set_in_errors("train", batch_limits(data, "train"), where):
        return MixedPlan(
            [len(one) for one in sets.values()],
            [mix.weights[name] for name in sets],
            data.batch_size or BATCH_SIZE,
            seed=settings.seed,
            drop_last=data.drop_last,
        )


def _check_names(given: Mapping[str, Any], sets: Mapping[str, Any], setting: str, where: Where) -> None:
    for name, value in given.items():
        if name not in sets:
            raise ConfigError(
                f"there is no training set {name!r}",
                setting=f"{setting}.{name}",
                received=value,
                where=where(f"{setting}.{name}"),
                fix=f"{did_you_mean(name, sets)}Dataset.build() gives {', '.join(sets)}",
            )


# ---- lengths and weights of samples ---------------------------------------------------------------------


def _required_column(dataset: Any, what: str, name: str, asking: tuple[str, Any], where: Where) -> Any:
    """Returns the lengths or weights of a set, one number for each sample.

    Raises:
        ContractError: The set has none, or its method needs arguments.
    """
    try:
        found = sample_column(dataset, what)
    except TypeError as error:
        if _needs_no_argument(getattr(dataset, what)):  # the method itself raised the error
            raise
        raise ContractError(
            f"{what}() of {describe_set(name)} ({type(dataset).__name__}) needs arguments: {error}",
            setting=asking[0],
            received=asking[1],
            where=where(asking[0]),
            fix=f"let `{what}` be an attribute, or a method without arguments",
        ) from error
    if found is None:
        setting, value = asking
        raise ContractError(
            f"{describe_set(name)} ({type(dataset).__name__}) has no {what}",
            setting=setting,
            received=value,
            where=where(setting),
            fix=f"give it `{what}`, one number for each sample: an attribute, or a method without arguments",
        )
    return found


def _needs_no_argument(function: Any) -> bool:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


def sample_column(dataset: Any, what: str) -> Any:
    """Returns a set's ``lengths`` or ``weights``, one number for each sample, from an attribute or a method
    without arguments; None if it has neither. Subsets and concatenations take it from the sets in them."""
    found = getattr(dataset, what, None)
    if found is not None:
        return found() if callable(found) else found
    if isinstance(dataset, Subset):  # random_split gives these
        whole = sample_column(dataset.dataset, what)
        return None if whole is None else np.asarray(whole)[np.asarray(dataset.indices, dtype=np.int64)]
    if isinstance(dataset, ConcatDataset):
        parts = [sample_column(one, what) for one in dataset.datasets]
        return None if any(one is None for one in parts) else np.concatenate(parts)
    return None


# ---- errors ---------------------------------------------------------------------------------------------


@contextmanager
def name_set_in_errors(name: str, limits: BatchLimits, where: Where) -> Iterator[None]:
    """Adds to a plan's error what the plan does not know: the set's name and the location of its setting."""
    keys = {"data.batch_size": limits.samples_key, "data.max_tokens": limits.tokens_key}
    try:
        yield
    except ConfigError as error:
        message, setting = error.message, keys.get(error.setting or "", error.setting)
        called = describe_set(name)
        # An error keeps only the text of the value.
        received = str(error).partition(message)[2].partition(FIX_SEPARATOR)[0]
        said = message.replace("the dataset", called)
        said = said if called in said else f"{called}: {said}"
        raise ConfigError(
            said + received,
            setting=setting,
            where=where(setting) if setting is not None else None,
            fix=error.fix and error.fix.replace("data.batch_size", limits.samples_key),
        ) from error.__cause__
