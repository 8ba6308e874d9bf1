"""The table of all settings: ``python -m tools.settings_page > docs/settings.md`` renews that page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from roost.config import settings
from roost.config.dlnest import dlnest_settings

_HEAD = """# Settings

All settings of a config; `NAME` is a name that you choose. Other keys at the top of a config are your own.
In an optimizer, a parameter group and a scheduler every other key is an argument of the class.
`roost run CONFIG --explain KEY` shows one key, with its value and where it was set.

| key | values | default | meaning |
|---|---|---|---|
"""
_CONTRACT_HEAD = """
## In a config of DLNest's contract

A config with `runner_file_path`, `model_file_path` or `child_jsons` is one of DLNest's contract. Every key is
the project's, except those of the section `roost`, on the command line `roost.precision=bf16`. The table ends
with the keys of the contract that roost reads.

| key | values | default | meaning |
|---|---|---|---|
"""
_SAMPLE: dict[str, Any] = {
    "optimizers": {"NAME": {"class": "", "groups": [{}], "scheduler": {"class": ""}}},
    "early_stopping": {},
    "options": {"NAME": {}},
    "runner": {"losses": {"NAME": {}}, "metrics": {"NAME": {}}},
    "init_from": {},
    "data": {"mix": {}, "stage": {}},
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
    native = "".join(_row(key, known, settings) for key in _keys())
    contract = "".join(_row(key, dlnest_settings.all_defaults(), dlnest_settings) for key in _contract_keys())
    return f"{_HEAD}{native}{_CONTRACT_HEAD}{contract}"


def _keys() -> Iterator[str]:
    for key in settings.known_keys(_SAMPLE):
        if not key.endswith(".NAME"):
            yield key
        for listed, names in _LISTED.items():
            if listed == f"{key}.N":
                yield from (f"{listed}.{name}" for name in names)


def _contract_keys() -> Iterator[str]:
    """Yields the keys of roost in DLNest's contract, but not those in mirrors, as above."""
    for key in [*dlnest_settings.known_keys({}), *dlnest_settings.contract_keys()]:
        if key != dlnest_settings.SECTION and not key.startswith(f"{dlnest_settings.SECTION}.mirrors."):
            yield key


def _row(key: str, known: Mapping[str, Any], schema: Any) -> str:
    name = key.replace(".N.", ".0.")
    return f"| `{key}` | {schema.allowed_values(name)} | {default(key, known)} | {schema.describe(name)} |\n"


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
