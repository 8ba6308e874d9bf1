"""The table of all settings: ``python -m tools.settings_page > docs/settings.md`` renews that page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from roost.config import settings

_HEAD = """# Settings

All settings of a config; `NAME` is a name that you choose. Other keys at the top of a config are your own.
In an optimizer, a parameter group and a scheduler every other key is an argument of the class.
`roost run CONFIG --explain KEY` shows one key, with its value and where it was set.

| key | values | default | meaning |
|---|---|---|---|
"""
_SAMPLE: dict[str, Any] = {
    "data": {"mix": {}},
    "optimizers": {"NAME": {"class": "", "groups": [{}], "scheduler": {"class": ""}}},
    "early_stopping": {},
    "options": {"NAME": {}},
    "runner": {"losses": {"NAME": {}}, "metrics": {"NAME": {}}},
    "init_from": {},
    "averages": {"NAME": {}},
    "statistics": {},
    "profile": {},
    "mirrors": {"tensorboard": {}, "csv": {}, "wandb": {}, "mlflow": {}},
}
_LISTED = {
    "checkpoint.best.N": ("monitor", "mode", "top_k"),
    "optimizers.NAME.groups.N": ("params",),
}


def markdown() -> str:
    """Returns the page."""
    known = settings.defaults(_SAMPLE)
    return _HEAD + "".join(_row(key, known) for key in _keys())


def _keys() -> Iterator[str]:
    for key in settings.known_keys(_SAMPLE):
        if not key.endswith(".NAME"):
            yield key
        for listed, names in _LISTED.items():
            if listed == f"{key}.N":
                yield from (f"{listed}.{name}" for name in names)


def _row(key: str, known: Mapping[str, Any]) -> str:
    name = key.replace(".N.", ".0.")
    return (
        f"| `{key}` | {settings.allowed_values(name)} | {default(key, known)} | {settings.describe(name)} |\n"
    )


def default(key: str, known: Mapping[str, Any]) -> str:
    """The cell of a setting's default; empty where it has none, or is a section.

    Args:
        key: Dotted.
        known: What `roost.config.settings.defaults` gave.
    """
    value: Any = known
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return "" if value is None or isinstance(value, Mapping) else f"`{json.dumps(value)}`"


if __name__ == "__main__":
    print(markdown(), end="")
