"""What other trainers call a setting, or a value, of roost's: nobody finds those by their letters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from roost.base.suggest import nearest

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
}
"""A name of ours, and how others call it."""
_VALUES = {
    "fp16": ("16", "16-mixed", "16-true", "float16", "half", "amp"),
    "bf16": ("bf16-mixed", "bf16-true", "bfloat16"),
    32: ("32", "32-true", "fp32", "float32", "full"),
    "compile": ("compiled", "torch.compile"),
}
_OF_CLASSES = ("lr", "weight_decay")
"""Those of them that are no setting of roost's, but an argument of torch's optimizers."""
_OURS = {other: ours for ours, others in _NAMES.items() for other in others}
_MEANT: dict[str, Any] = {other: ours for ours, others in _VALUES.items() for other in others}


def name(key: str, candidates: Collection[str]) -> str | None:
    """Which of the candidates is called ``key`` elsewhere; None if none is, or several in other sections than
    that of ``key``. All may be dotted keys: their last names count."""
    section, dot, last = key.rpartition(".")
    if last not in _OURS:
        return None
    if (same := f"{section}{dot}{_OURS[last]}") in candidates:
        return same
    found = [one for one in candidates if one.rpartition(".")[2] == _OURS[last]]
    return found[0] if len(found) == 1 else None


def argument(key: str) -> str | None:
    """The dotted key of an optimizer's argument that others call so; None for one that roost would know."""
    section, _, last = key.rpartition(".")
    ours = _OURS.get(last) if section.startswith("optimizers.") else None
    return f"{section}.{ours}" if ours in _OF_CLASSES else None


def value(given: object, choices: Sequence[Any]) -> Any:
    """Which of the choices is called like that elsewhere, or was misspelled; None if none is."""
    meant = _MEANT.get(str(given).lower())
    if meant in choices:
        return meant
    texts = [choice for choice in choices if isinstance(choice, str)]
    return nearest(given, texts) if isinstance(given, str) else None


def proposal(key: str, candidates: Collection[str]) -> str:
    """``did you mean 'x'? `` for a fix: what others call so, else what is most like it, else nothing."""
    meant = name(key, candidates) or nearest(key, candidates)
    return f"did you mean {meant!r}? " if meant is not None else ""
