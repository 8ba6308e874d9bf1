"""The settings of CornerNet's JSON configs: each option with its value, or with its default there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from roost.base.config_files import read_config_file
from roost.base.errors import ConfigError, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.config.other_tools.option_tables.cornernet_options import GROUPS
from roost.config.other_tools.option_tables.option_table import by_name
from roost.operations.converting.conversion import Conversion
from roost.operations.converting.project_files import project_file
from roost.operations.converting.speechain_values import escape, parse_value, weights_path

SECTION = "cornernet"
_ARGUMENTS, _SYSTEM = (by_name([group]) for group in GROUPS)
_MAX_PREFETCH = 1024
_OPTIMIZERS: dict[str, dict[str, object]] = {
    "adam": {"class": "torch.optim.Adam"},
    "sgd": {"class": "torch.optim.SGD", "momentum": 0.9, "weight_decay": 1e-4},  # fixed there, too
}
_NOT_STORED = ("data_rng", "nnet_rng")
"""Options that are generators there, and no values."""


def convert_cornernet(path: Path, words: Sequence[str]) -> Conversion:
    """Converts a config of CornerNet or CornerNet-Lite.

    Args:
        path: The JSON file, with the sections ``system`` and ``db``.
        words: Arguments of its train.py or options of ``system``, ``name=value``; they win over the file.

    Raises:
        NotFound: There is no such file.
        ConfigError: The file or a value cannot be read.
        UsageError: A word is no option.
    """
    file = read_config_file(path, display_name=str(path))
    system, db = file.values.get("system"), file.values.get("db")
    if not isinstance(system, dict) or not isinstance(db, dict):
        raise ConfigError(
            "expected the sections `system` and `db`", where=path, fix="name a file of configs/"
        )
    typed = dict(_typed(word) for word in words)
    conversion = Conversion("CornerNet", path, SECTION)
    given = {name: value for name, value in system.items() if name in _SYSTEM}
    conversion.add_options(_ARGUMENTS, typed, lambda name: "command line")
    conversion.add_options(
        _SYSTEM,
        {**given, **{name: value for name, value in typed.items() if name in _SYSTEM}},
        lambda name: "command line" if name in typed else file.where(("system", name)),
    )
    for name in system:
        if name not in _SYSTEM:
            conversion.lose(f"system.{name}", "no option of train.py, which ignored it")
    conversion.put("description", f"converted from {path.name}")
    conversion.put("runner", "Runner.py:Runner", "cfg_file")
    conversion.put("dataset", "Dataset.py:Dataset", "dataset")
    _add_training(conversion)
    _add_optimizer(conversion)
    _add_data(conversion)
    conversion.own = {
        "model": path.stem,
        "system": {
            name: escape(conversion.value(name))
            for name in _SYSTEM
            if name not in (*_NOT_STORED, "snapshot_name")
        },
        "db": escape(db),
    }
    for name in ("Runner.py", "Dataset.py"):
        conversion.files[name] = project_file("cornernet", name)
    _add_remarks(conversion)
    return conversion


def _typed(word: str) -> tuple[str, object]:
    name, equals, text = word.partition("=")
    bare = name.removeprefix("--")
    known = {**dict.fromkeys(_SYSTEM), **{option.removeprefix("--"): option for option in _ARGUMENTS}}
    if not equals or bare not in known:
        raise UsageError(
            "expected an option with its value" if not equals else "there is no option",
            received=word,
            fix=f"{did_you_mean(bare, known)}write for example max_iter=1000 or workers=8",
        )
    return known[bare] or bare, parse_value(text)


def _add_training(conversion: Conversion) -> None:
    put, whole = conversion.put, conversion.whole
    put("seed", whole("nnet_rng", least=0), "nnet_rng")
    if conversion.options["data_rng"].is_given:
        conversion.lose("data_rng", "`seed` determines the data's random numbers, too")
    put("determinism", "off")  # there cuDNN measures its kernels
    steps = whole("max_iter", least=1)
    put("max_steps", steps, "max_iter")
    put("log_every", _interval(conversion, "display"), "display")
    put("validate_every", _interval(conversion, "val_iter"), "val_iter")
    put("data.limit_valid_batches", 1, "val_iter")
    snapshot = whole("snapshot", least=1)
    put("checkpoint.every", snapshot, "snapshot")
    put("checkpoint.fast", max(-(-steps // snapshot), 1), "snapshot")  # there all snapshots are kept
    put("test_at_end", "none", "test_split")
    put("save_root", str(conversion.value("cache_dir")), "cache_dir")
    if (path := conversion.value("pretrain")) is not None:
        found, remark = weights_path(str(path), conversion.source.absolute())
        conversion.remarks += [remark] if remark is not None else []
        put("init_from", {"path": found, "mapping": {"module.": "net."}, "strict": True}, "pretrain")
    if conversion.value("--iter"):
        conversion.lose("--iter", "`roost continue PACKAGE --iter N` continues a run")


def _interval(conversion: Conversion, name: str) -> int | str:
    return (conversion.whole(name, least=0) if conversion.value(name) else 0) or "never"


def _add_optimizer(conversion: Conversion) -> None:
    name = conversion.value("opt_algo")
    if name not in _OPTIMIZERS:
        raise conversion.error("opt_algo", "expected adam or sgd")
    for key, value in _OPTIMIZERS[name].items():
        conversion.put(f"optimizers.main.{key}", value, "opt_algo")
    conversion.put("optimizers.main.lr", conversion.number("learning_rate"), "learning_rate")
    decay = conversion.number("decay_rate")
    if decay <= 0:
        raise conversion.error("decay_rate", "expected a number above 0")
    key = "optimizers.main.scheduler"
    conversion.put(f"{key}.class", "torch.optim.lr_scheduler.StepLR", "stepsize")
    conversion.put(f"{key}.unit", "step", "stepsize")
    conversion.put(f"{key}.step_size", conversion.whole("stepsize", least=1), "stepsize")
    conversion.put(f"{key}.gamma", 1 / decay, "decay_rate")  # a divisor there


def _add_data(conversion: Conversion) -> None:
    workers = conversion.whole("--workers", least=0)
    conversion.put("data.num_workers", workers, "--workers")
    prefetch = conversion.whole("prefetch_size", least=1)  # of all workers together
    each = min(-(-prefetch // max(workers, 1)), _MAX_PREFETCH)
    conversion.put("data.prefetch", each, "prefetch_size", "--workers")
    conversion.whole("batch_size", least=1)
    conversion.options["batch_size"].keys.append(f"{SECTION}.system.batch_size")
    chunks = conversion.value("chunk_sizes")
    if chunks is not None and (not isinstance(chunks, list) or not chunks):
        raise conversion.error("chunk_sizes", "expected a list with the images of each GPU")
    if chunks is not None and len(set(chunks)) > 1:
        conversion.lose("chunk_sizes", "each GPU gets an equal share of the batch")
    count = len(chunks) if chunks else 1
    conversion.put("devices", count, "chunk_sizes")
    conversion.put("strategy", "ddp" if count > 1 else None, "chunk_sizes")
    if conversion.value("--distributed"):
        conversion.put("strategy", "ddp", "--distributed")
        conversion.put("sync_batch_norm", True, "--distributed")
        conversion.put("devices", "auto", "--distributed")


def _add_remarks(conversion: Conversion) -> None:
    model = conversion.source.stem
    if not re.fullmatch(r"[A-Za-z_]\w*", model):
        conversion.remarks.append(
            f"{model} is no name of a Python module: set `{SECTION}.model` to the file of core/models, "
            "without .py; there the config and the model had one name"
        )
    conversion.remarks += [
        "the folder core/ of the checkout must be in this folder: Runner.py and Dataset.py import it, and a "
        "package gets a copy",
        "a validation reads the same batch each time; there it was another one each time",
        "the training set is divided among the loader workers; there each of them read all of it",
    ]
