"""Which plan the settings ask for."""

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


def nowhere(key: str) -> str | None:
    """The place of a setting that no file holds."""
    return None


def in_words(name: str) -> str:
    """A set as messages call it: ``the validation set NAME`` for ``valid/NAME``."""
    split, _, own = name.partition("/")
    kind = {"train": "training", "valid": "validation", "predict": "prediction"}.get(split, split)
    return f"the {kind} set {own}".rstrip()


def plan_of(
    dataset: Any,
    settings: Settings,
    name: str = "train",
    *,
    training: bool = False,
    batches_per_step: int = 1,
    where: Where = nowhere,
) -> Plan:
    """The order of the data, out of the settings alone.

    ```
    evaluation  the set's own order, in batches of a size or of a budget of tokens
    training    several sets    data.mix: a batch of each, or one set after the other, or all in each batch
                by weight       data.weighted
                by length       data.sort_by_length, data.max_tokens
                else            shuffled, or in the set's order
    then        data.steps_per_epoch cuts other epochs, data.limit_..._batches takes the first of each
    ```

    Args:
        dataset: Map-style; of training also several by name.
        settings: The run's.
        name: Of the set: train, valid, test or ``valid/NAME``.
        training: Whether it is trained on; else each sample comes once, in the set's order.
        batches_per_step: Micro-batches of a step, of which an epoch of ``data.steps_per_epoch`` has so many.
        where: Where a setting was set, for messages.

    Raises:
        ConfigError: A setting does not fit the set.
        ContractError: The set has no lengths or weights, and a setting asks for them.
    """
    data, split = settings.data, name.partition("/")[0]
    if isinstance(dataset, Mapping):
        plan = _of_several(dataset, settings, where)
    else:
        plan = _of_one(dataset, settings, name, training=training, seed=settings.seed, where=where)
    if training and data.steps_per_epoch is not None:
        plan = VirtualEpochs(plan, data.steps_per_epoch * batches_per_step)
    if training or split != "train":
        limit = getattr(data, f"limit_{split}_batches", None)  # there is none for predictions
        plan = plan if limit is None else LimitedEpochs(plan, limited(limit, plan.num_batches))
    return plan


def limited(limit: float, num_batches: int) -> int:
    """So many batches of ``num_batches``: ``limit`` of them, or that share, rounded; at least one."""
    return min(limit, num_batches) if isinstance(limit, int) else max(1, round(limit * num_batches))


def of_split(data: DataSettings, name: str) -> SplitSettings | None:
    """What differs from training in the split of a set."""
    return {"valid": data.valid, "test": data.test}.get(name.partition("/")[0])


class Limits(NamedTuple):
    """What a batch of one set may hold; any number when None."""

    num_samples: int | None
    max_tokens: int | None
    samples_key: str
    """The dotted key that says so, or would."""
    tokens_key: str
    is_asked_for: bool
    """Whether somebody has set ``num_samples``."""


def limits_of(data: DataSettings, name: str) -> Limits:
    """What a batch of a set may hold. A split that names one of the two takes neither from training."""
    split, _, own_name = name.partition("/")
    own = of_split(data, name)
    is_own = own is not None and (own.batch_size or own.max_tokens)
    chosen, key = (own, f"data.{split}") if own is not None and is_own else (data, "data")
    num_samples, samples_key = chosen.batch_size, f"{key}.batch_size"
    if split == "train" and data.mix is not None and own_name in data.mix.batch_sizes:
        num_samples, samples_key = data.mix.batch_sizes[own_name], f"data.mix.batch_sizes.{own_name}"
    most = num_samples or (None if chosen.max_tokens else BATCH_SIZE)
    return Limits(most, chosen.max_tokens, samples_key, f"{key}.max_tokens", num_samples is not None)


def _of_one(dataset: Any, settings: Settings, name: str, *, training: bool, seed: int, where: Where) -> Plan:
    data, limits = settings.data, limits_of(settings.data, name)
    batch_size, max_tokens = limits.num_samples, limits.max_tokens
    sort = data.sort_by_length if training else None
    drop_last, size = training and data.drop_last, len(dataset)
    with explained(name, limits, where):
        if training and data.weighted:
            weights = _column(dataset, "weights", name, ("data.weighted", True), where)
            return WeightedPlan(
                weights, batch_size or BATCH_SIZE, seed=seed, drop_last=drop_last, set_size=size
            )
        if sort is None and max_tokens is None:
            shuffle = training and data.shuffle
            return BatchPlan(size, batch_size or BATCH_SIZE, seed=seed, shuffle=shuffle, drop_last=drop_last)
        asking = (limits.tokens_key, max_tokens) if sort is None else ("data.sort_by_length", sort)
        return LengthPlan(
            _column(dataset, "lengths", name, asking, where),
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


def gives_each(settings: Settings) -> bool:
    """Whether a batch of several training sets is one of each, by name; else they are drawn from as one."""
    return (settings.data.mix or MixSettings()).mode in ("min_size", "max_size_cycle")


def _of_several(sets: Mapping[str, Any], settings: Settings, where: Where) -> Plan:
    mix = settings.data.mix or MixSettings()
    _check_names(mix.weights, sets, "data.mix.weights", where)
    _check_names(mix.batch_sizes, sets, "data.mix.batch_sizes", where)
    if mix.mode == "weighted":
        return _weighted(sets, settings, mix, where)
    plans = {}
    for name, dataset in sets.items():
        # A seed of its own: else two sets of one size would be shuffled alike, always the same pairs.
        seed = seeding.mix(settings.seed, "set", name)
        plans[name] = _of_one(dataset, settings, f"train/{name}", training=True, seed=seed, where=where)
    if mix.mode == "sequential":
        offsets = itertools.accumulate((len(one) for one in sets.values()), initial=0)
        return ChainedPlan(list(zip(plans.values(), offsets, strict=False)))
    return CombinedPlan(plans, mix.mode)


def _weighted(sets: Mapping[str, Any], settings: Settings, mix: MixSettings, where: Where) -> Plan:
    data = settings.data
    if missing := [name for name in sets if name not in mix.weights]:
        raise ConfigError(
            f"the training set {missing[0]} has no weight",
            setting="data.mix.weights",
            received=mix.weights,
            where=where(f"data.mix.weights.{next(iter(mix.weights), '')}"),
            fix="give each set its weight; 0 leaves one out",
        )
    with explained("train", limits_of(data, "train"), where):
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


# ---- what a set says of its samples ---------------------------------------------------------------------


def _column(dataset: Any, what: str, name: str, asking: tuple[str, Any], where: Where) -> Any:
    """Its lengths or weights: one number for each sample."""
    try:
        found = column_of(dataset, what)
    except TypeError as error:
        if _needs_no_argument(getattr(dataset, what)):  # it is an error of its own
            raise
        raise ContractError(
            f"{what}() of {in_words(name)} ({type(dataset).__name__}) needs arguments: {error}",
            setting=asking[0],
            received=asking[1],
            where=where(asking[0]),
            fix=f"let `{what}` be an attribute, or a method without arguments",
        ) from error
    if found is None:
        setting, value = asking
        raise ContractError(
            f"{in_words(name)} ({type(dataset).__name__}) has no {what}",
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


def column_of(dataset: Any, what: str) -> Any:
    """What a set gives as ``what``, one number for each sample: an attribute, or a method without arguments.
    None if it gives nothing."""
    found = getattr(dataset, what, None)
    if found is not None:
        return found() if callable(found) else found
    if isinstance(dataset, Subset):  # random_split gives these
        whole = column_of(dataset.dataset, what)
        return None if whole is None else np.asarray(whole)[np.asarray(dataset.indices, dtype=np.int64)]
    if isinstance(dataset, ConcatDataset):
        parts = [column_of(one, what) for one in dataset.datasets]
        return None if any(one is None for one in parts) else np.concatenate(parts)
    return None


# ---- errors ---------------------------------------------------------------------------------------------


@contextmanager
def explained(name: str, limits: Limits, where: Where) -> Iterator[None]:
    """Tells in an error of a plan what that cannot know: its set, and where its setting was set."""
    keys = {"data.batch_size": limits.samples_key, "data.max_tokens": limits.tokens_key}
    try:
        yield
    except ConfigError as error:
        message, setting = error.message, keys.get(error.setting or "", error.setting)
        called = in_words(name)
        # Of the value an error keeps the text alone.
        received = str(error).partition(message)[2].partition(FIX_SEPARATOR)[0]
        said = message.replace("the dataset", called)
        said = said if called in said else f"{called}: {said}"
        raise ConfigError(
            said + received,
            setting=setting,
            where=where(setting) if setting is not None else None,
            fix=error.fix and error.fix.replace("data.batch_size", limits.samples_key),
        ) from error.__cause__
