"""Iterators of SpeeChain: sets for the project's code, and the settings of their batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from roost.base.errors import ConfigError
from roost.config.other_tools.option_tables.option_table import by_name
from roost.config.other_tools.option_tables.speechain_options import ITERATORS
from roost.operations.converting.conversion import Conversion, whole_number

SPLITS = ("train", "valid", "test")
_KEYS = by_name([ITERATORS])


def iterators(given: Any, split: str, where: object) -> dict[str, Mapping[str, Any]]:
    """Returns the iterators of a split by their names; a single one without a name is called "".

    Raises:
        ConfigError: One is not described by ``type`` and ``conf``.
    """
    if _is_iterator(given):
        return {"": given}
    found = dict(given) if isinstance(given, Mapping) else {}
    for name, one in found.items():
        if not _is_iterator(one) and not (split == "test" and _is_named(one)):
            raise _no_iterator(f"data_cfg.{split}.{name}", one, where)
    if not found:
        raise _no_iterator(f"data_cfg.{split}", given, where)
    return found


def _is_iterator(value: Any) -> bool:
    conf = value.get("conf") if isinstance(value, Mapping) else None
    return isinstance(conf, Mapping) and "dataset_type" in conf


def _is_named(value: Any) -> bool:
    """Whether a test set has several iterators, as its batches have parts."""
    return isinstance(value, Mapping) and bool(value) and all(map(_is_iterator, value.values()))


def _no_iterator(setting: str, value: Any, where: object) -> ConfigError:
    return ConfigError(
        "expected an iterator",
        setting=setting,
        received=value,
        where=where,
        fix="write {type: abs.Iterator, conf: {dataset_type: ..., dataset_conf: {...}}}, or several by name",
    )


def add_data(conversion: Conversion, data: Mapping[str, Any], where: object) -> None:
    """Adds the settings of ``data_cfg``: batches, workers, and how several sets are mixed.

    Raises:
        ConfigError: A split is not described by iterators, or a number is not one.
    """
    conversion.put("data.num_workers", conversion.whole("train_num_workers", least=0), "train_num_workers")
    for split in SPLITS:
        if data.get(split) is not None:
            found = iterators(data[split], split, where)
            if split == "train":
                _add_training(conversion, found, where)
            else:
                _add_evaluation(conversion, split, found, where)


def _add_training(conversion: Conversion, found: Mapping[str, Mapping[str, Any]], where: object) -> None:
    first = next(iter(found.values()))["conf"]
    sizes: dict[str, int] = {}
    for name, one in found.items():
        setting, conf = ".".join(filter(None, ("data_cfg.train", name))), one["conf"]
        _refuse_unknown(conversion, setting, conf)
        if (length := conf.get("batch_len")) is not None:
            conversion.put("data.max_tokens", whole_number(length, f"{setting}.batch_len", where, least=1))
            conversion.put("data.count_padding", False)  # there the lengths are summed
            if length != first.get("batch_len"):
                conversion.lose(f"{setting}.batch_len", "one number for all sets: `data.max_tokens`")
        else:
            size = conf.get("batch_size") or conversion.whole("ngpu", least=1)
            sizes[name] = whole_number(size, f"{setting}.batch_size", where, least=1)
    if "" in sizes:
        conversion.put("data.batch_size", sizes[""])
    if "" not in found:
        conversion.put("data.mix.mode", "min_size")
        if sizes:
            conversion.put("data.mix.batch_sizes", sizes)
    conversion.put("data.shuffle", bool(first.get("shuffle", _KEYS["shuffle"].initial)))
    if first.get("data_len") is not None:
        is_descending = first.get("is_descending", _KEYS["is_descending"].initial)
        conversion.put("data.sort_by_length", "descending" if is_descending else "ascending")
    if (steps := first.get("batches_per_epoch")) is not None:
        accumulated = conversion.whole("accum_grad", least=1)
        batches = whole_number(steps, "data_cfg.train.batches_per_epoch", where, least=1)
        conversion.put("data.steps_per_epoch", max(batches // accumulated, 1))
        if batches % accumulated:
            conversion.remarks.append(
                f"`batches_per_epoch` {batches} is no multiple of `accum_grad` {accumulated}: an epoch has "
                f"{max(batches // accumulated, 1)} whole steps"
            )


def _add_evaluation(
    conversion: Conversion, split: str, found: Mapping[str, Mapping[str, Any]], where: object
) -> None:
    workers = f"{split}_num_workers"
    conversion.put(f"data.{split}.num_workers", conversion.whole(workers, least=0), workers)
    confs = [one["conf"] for one in found.values() if _is_iterator(one)]
    for name, one in found.items():
        setting = ".".join(filter(None, (f"data_cfg.{split}", name)))
        if _is_iterator(one):
            _refuse_unknown(conversion, setting, one["conf"])
        else:
            conversion.lose(setting, "a batch of several sets in a test: here each is a test set of its own")
    if not confs:
        return
    first = confs[0]
    if (length := first.get("batch_len")) is not None:
        tokens = whole_number(length, f"data_cfg.{split}.batch_len", where, least=1)
        conversion.put(f"data.{split}.max_tokens", tokens)
    else:
        size = first.get("batch_size") or conversion.whole("ngpu", least=1)  # there as many as GPUs
        conversion.put(
            f"data.{split}.batch_size", whole_number(size, f"data_cfg.{split}.batch_size", where, least=1)
        )
    if (limit := first.get("batches_per_epoch")) is not None:
        batches = whole_number(limit, f"data_cfg.{split}.batches_per_epoch", where, least=1)
        conversion.put(f"data.limit_{split}_batches", batches)
    for key in ("batch_size", "batch_len", "batches_per_epoch"):
        if any(conf.get(key) != first.get(key) for conf in confs):
            conversion.lose(f"data_cfg.{split}: {key}", f"one value for all sets: `data.{split}`")


def _refuse_unknown(conversion: Conversion, setting: str, conf: Mapping[str, Any]) -> None:
    for name, value in conf.items():
        if name == "data_selection" and value is not None:
            conversion.lose(
                f"{setting}.{name}",
                "take the samples in samples.py, or give it in `dataset_conf` if the "
                "dataset's class takes it",
            )
        elif name not in _KEYS and value is not None:
            conversion.lose(f"{setting}.{name}", "an argument of an iterator of your own")


def sets(written: Any, split: str, where: object) -> dict[str, Any]:
    """Returns the sets of a split for the project's code: ``{dataset, arguments, data_len, group_info}``, or
    several by name.

    Args:
        written: The split of ``data_cfg``, with references.
        split: train, valid or test.
        where: For messages.
    """
    found = dict(_sets(iterators(written, split, where)))
    return found.get("", found)


def _sets(found: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, one in found.items():
        if not _is_iterator(one):  # a batch of a test set with several parts: one set for each
            yield from ((f"{name}-{inner}", spec) for inner, spec in _sets(one))
            continue
        conf = one["conf"]
        spec = {"dataset": conf["dataset_type"], "arguments": conf.get("dataset_conf") or {}}
        spec |= {key: conf[key] for key in ("data_len", "group_info") if conf.get(key) is not None}
        yield name, spec
