"""Names of settings and values in other trainers, for suggestions that a comparison of letters cannot
give."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from roost.base.text.suggestions import closest_match

_NAMES = {
    "lr": ("learning_rate", "base_lr", "init_lr"),
    "weight_decay": ("wd", "l2"),
    "max_grad_norm": ("clip", "grad_clip", "clip_grad", "clip_grad_norm", "gradient_clip_val", "max_norm"),
    "precision": ("amp", "use_amp", "fp16", "bf16", "mixed_precision"),
    "gradient_accumulation_steps": (
        "accumulate_grad_batches",
        "accum_grad",
        "grad_accum",
        "grad_accum_steps",
        "accumulation_steps",
    ),
    "max_epochs": ("epochs", "num_epochs", "n_epochs", "num_train_epochs"),
    "max_steps": ("steps", "num_steps", "n_steps", "max_iters", "num_iterations"),
    "batch_size": ("per_device_train_batch_size", "train_batch_size", "samples_per_gpu"),
    "num_workers": ("workers", "n_workers", "dataloader_num_workers", "workers_per_gpu"),
    "prefetch": ("prefetch_factor", "dataloader_prefetch_factor"),
    "loader_timeout": ("timeout",),
    "weighted": ("sampler", "weighted_sampler"),
    "sort_by_length": ("group_by_length",),
    "max_tokens": ("batch_sampler", "max_tokens_per_batch"),
    "steps_per_epoch": ("batches_per_epoch",),
    "limit_valid_batches": ("limit_val_batches",),
    "mix": ("combine", "combined_loader"),
}
"""The names of roost, each with its names in other trainers."""
_VALUES = {
    "fp16": ("16", "16-mixed", "16-true", "float16", "half", "amp"),
    "bf16": ("bf16-mixed", "bf16-true", "bfloat16"),
    32: ("32", "32-true", "fp32", "float32", "full"),
    "compile": ("compiled", "torch.compile"),
}
_OPTIMIZER_ARGUMENTS = ("lr", "weight_decay")
"""The names that are not settings of roost, but arguments of torch's optimizers."""
_DATA_KEYS = (
    *("num_workers", "drop_last", "sort_by_length", "steps_per_epoch", "loader_timeout"),
    *("limit_train_batches", "limit_valid_batches", "limit_test_batches"),
    *("prefetch_factor", "batch_sampler", "limit_val_batches"),
)
"""Keys that at the top of a config can only mean a setting of ``data``. (``sampler`` or ``timeout`` may be
keys of the user.)"""
_NAME_OF_SYNONYM = {other: ours for ours, others in _NAMES.items() for other in others}
_VALUE_OF_SYNONYM: dict[str, Any] = {other: ours for ours, others in _VALUES.items() for other in others}


def find_setting(key: str, candidates: Collection[str]) -> str | None:
    """Returns the candidate that another trainer calls ``key``; None if there is none, or if there are
    several at the same depth outside of the section of ``key``. Dotted keys are compared by their last
    names."""
    section, dot, last = key.rpartition(".")
    if last not in _NAME_OF_SYNONYM:
        return None
    if (same := f"{section}{dot}{_NAME_OF_SYNONYM[last]}") in candidates:
        return same
    found = [one for one in candidates if one.rpartition(".")[2] == _NAME_OF_SYNONYM[last]]
    outermost = min((one.count(".") for one in found), default=0)
    found = [one for one in found if one.count(".") == outermost]
    return found[0] if len(found) == 1 else None


def nested_keys(key: str, candidates: Collection[str]) -> list[str]:
    """Returns the outermost candidates that end with ``key``: ``optimizers.main.lr`` for ``lr``."""
    found = [one for one in candidates if one.endswith(f".{key}")]
    outermost = min((one.count(".") for one in found), default=0)
    return [one for one in found if one.count(".") == outermost]


def data_setting(key: str) -> str | None:
    """Returns the setting of ``data`` that a key at the top must mean; None if the key may be the user's."""
    return _NAME_OF_SYNONYM.get(key, key) if key in _DATA_KEYS else None


def optimizer_argument(key: str) -> str | None:
    """Returns the dotted key of an optimizer's argument for its name in another trainer; None if there is
    none."""
    section, _, last = key.rpartition(".")
    ours = _NAME_OF_SYNONYM.get(last) if section.startswith("optimizers.") else None
    return f"{section}.{ours}" if ours in _OPTIMIZER_ARGUMENTS else None


def find_choice(given: object, choices: Sequence[Any]) -> Any:
    """Returns the choice that another trainer calls ``given``, or that is similar to it; None if there is
    none."""
    meant = _VALUE_OF_SYNONYM.get(str(given).lower())
    if meant in choices:
        return meant
    texts = [choice for choice in choices if isinstance(choice, str)]
    return closest_match(given, texts) if isinstance(given, str) else None


def did_you_mean(key: str, candidates: Collection[str]) -> str:
    """Returns ``did you mean 'x'? `` for a fix, with the first of: the setting that another trainer calls
    ``key``, a setting of that name in a section, the most similar one. An empty text if there is none."""
    inside = nested_keys(key, candidates)
    if len(inside) in (2, 3) and find_setting(key, candidates) is None:
        return f"did you mean {' or '.join(map(repr, inside))}? "
    meant = find_setting(key, candidates) or (
        inside[0] if len(inside) == 1 else closest_match(key, candidates)
    )
    return f"did you mean {meant!r}? " if meant is not None else ""
