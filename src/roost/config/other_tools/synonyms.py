"""Names of settings and values in other trainers, for suggestions that a comparison of letters cannot
give. The names of settings are those of `known_tools`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from roost.base.text.suggestions import closest_match
from roost.config.other_tools import known_tools

_VALUES = {
    "fp16": ("16", "16-mixed", "16-true", "float16", "half", "amp"),
    "bf16": ("bf16-mixed", "bf16-true", "bfloat16"),
    32: ("32", "32-true", "fp32", "float32", "full"),
    "compile": ("compiled", "torch.compile"),
}
_OPTIMIZER_ARGUMENTS = ("lr", "weight_decay")
"""The names that are not settings of roost, but arguments of torch's optimizers."""
_SETTING_OF_KEY = known_tools.settings_by_key()
_NAME_OF_SYNONYM = {
    key: name
    for key, here in _SETTING_OF_KEY.items()
    if "." not in key and (name := here.rpartition(".")[2]) != key
}
_VALUE_OF_SYNONYM: dict[str, Any] = {other: ours for ours, others in _VALUES.items() for other in others}


def find_setting(key: str, candidates: Collection[str]) -> str | None:
    """Returns the candidate that another trainer calls ``key``; None if there is none, or if there are
    several at the same depth outside of the section of ``key``. Dotted keys that no tool has are compared by
    their last names."""
    if (here := _SETTING_OF_KEY.get(key)) is not None:
        found = [one for one in candidates if _is_named(one, here)]
        if len(found) == 1:
            return found[0]
    section, dot, last = key.rpartition(".")
    if last not in _NAME_OF_SYNONYM:
        return None
    if (same := f"{section}{dot}{_NAME_OF_SYNONYM[last]}") in candidates:
        return same
    found = [one for one in candidates if one.rpartition(".")[2] == _NAME_OF_SYNONYM[last]]
    outermost = min((one.count(".") for one in found), default=0)
    found = [one for one in found if one.count(".") == outermost]
    return found[0] if len(found) == 1 else None


def _is_named(key: str, setting: str) -> bool:
    """Whether a dotted key is a setting of `known_tools`, in which ``NAME`` is any name."""
    names, own = setting.split("."), key.split(".")
    return len(names) == len(own) and all(a in (b, "NAME") for a, b in zip(names, own, strict=True))


def nested_keys(key: str, candidates: Collection[str]) -> list[str]:
    """Returns the outermost candidates that end with ``key``: ``optimizers.main.lr`` for ``lr``."""
    found = [one for one in candidates if one.endswith(f".{key}")]
    outermost = min((one.count(".") for one in found), default=0)
    return [one for one in found if one.count(".") == outermost]


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
