"""The features of a run on which its card memory may depend: its code and its settings, each by a digest.

They are the text in ``Task.profile`` and `MemoryPeak.key`. Which of the settings matter is learned from the
measurements (`roost.lab.memory.run_comparison`); a few never do.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_DIGITS = 8
_BATCH_SETTINGS = ("batch_size", "max_tokens")
_IRRELEVANT_SETTINGS = frozenset([
    "checkpoint", "description", "devices", "early_stopping", "limits", "log_every", "max_epochs",
    "max_steps", "max_time", "mirrors", "project", "rank_timeout", "save_root", "seed", "test_at_end",
    "validate_every",
])  # fmt: skip
"""Top-level settings that do not change the memory of a step; the number of ranks is a separate column."""
_IRRELEVANT_OPTIMIZER_SETTINGS = frozenset(
    ["lr", "weight_decay", "scheduler", "max_grad_norm", "betas", "eps"]
)


class MemoryFeatures(msgspec.Struct, frozen=True, omit_defaults=True):
    """The features of one run."""

    family: str
    """Runs of one family are compared: those of one project."""
    code: str = ""
    """The digest of the code."""
    settings: dict[str, str] = {}
    """The digest of the value of each setting, by its dotted key."""
    sweep: str = ""
    """The id of its sweep; empty: none."""

    def to_text(self) -> str:
        """Returns the text that `from_text` reads; equal for equal features."""
        return f"{self.family} {_encoder.encode(self).decode()}"

    @staticmethod
    def family_of(text: str) -> str:
        """Returns the family alone, without decoding the rest."""
        return text.partition(" ")[0]

    @staticmethod
    @functools.lru_cache(maxsize=4096)
    def from_text(text: str) -> MemoryFeatures:
        """Reads features. A text of an older version, one digest of all, is a family of its own."""
        family, _, rest = text.partition(" ")
        return _decoder.decode(rest) if rest else MemoryFeatures(family=family)


_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(MemoryFeatures)


def memory_features(
    settings: Mapping[str, Any], *, family: str, code: str, sweep: str | None = None
) -> tuple[MemoryFeatures, float | None]:
    """Returns the features of a run, and the scale with which its memory grows: the batch size.

    Args:
        settings: The effective settings, all layers merged.
        family: Names the project.
        code: The digest of the code of the run.
        sweep: The id of its sweep, if it is of one.
    """
    kept = {key: value for key, value in settings.items() if key not in _IRRELEVANT_SETTINGS}
    data = kept.get("data")
    scale = None
    if isinstance(data, Mapping):
        named = next((key for key in _BATCH_SETTINGS if _is_number(data.get(key))), None)
        scale = float(data[named]) if named is not None else None
        kept["data"] = {key: named if key == named else value for key, value in data.items()}
    optimizers = kept.get("optimizers")
    if isinstance(optimizers, Mapping):
        kept["optimizers"] = {name: _without_rates(one) for name, one in optimizers.items()}
    digests = {key: _digest(value) for key, value in _leaves(kept)}
    return MemoryFeatures(_digest(family), code[:_DIGITS], digests, sweep or ""), scale


def _without_rates(optimizer: Any) -> Any:
    if not isinstance(optimizer, Mapping):
        return optimizer
    return {key: value for key, value in optimizer.items() if key not in _IRRELEVANT_OPTIMIZER_SETTINGS}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
