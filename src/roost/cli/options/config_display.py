"""The output of `roost run --explain` and `--print-config`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from roost.base.config_files import parse_scalar
from roost.config.values.nested_values import ABSENT
from roost.display import terminal
from roost.operations.lifecycle.explain import SettingExplanation, explain, merged_settings


class _SettingsDumper(yaml.SafeDumper):
    """Quotes every text that roost's config reader would read as another type."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    plain = "\n" not in text and parse_unquoted(text) == text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else "'")


def parse_unquoted(text: str) -> Any:
    """Returns the value of a text written without quotes; None if it cannot be parsed."""
    from roost.base.errors import ConfigError

    try:
        return parse_scalar(text)
    except ConfigError:
        return None


_SettingsDumper.add_representer(str, _represent_text)


def print_settings(
    config: Path, tuning: Path | None, overrides: Sequence[str], *, key: str | None, as_json: bool
) -> int:
    """Prints all settings, or the origin of one of them."""
    if key:
        found = explain(config, key, tuning=tuning, overrides=overrides)
        if as_json:
            terminal.print_json(_to_json(found))
        else:
            click.echo(_format_explanation(found))
        return 0
    values = merged_settings(config, tuning=tuning, overrides=overrides)
    if as_json:
        terminal.print_json(values)
    else:
        click.echo(to_yaml(values).rstrip("\n"))
    return 0


def to_yaml(values: Any) -> str:
    """Returns settings as YAML that roost reads back unchanged."""
    return yaml.dump(values, Dumper=_SettingsDumper, sort_keys=False, allow_unicode=True, width=100)


def _to_json(found: SettingExplanation) -> dict[str, Any]:
    layers = [
        {"layer": layer, "value": None if v is ABSENT else v, "set": v is not ABSENT}
        for layer, v in found.layers
    ]
    return {"key": found.key, "help": found.help, "values": found.values, "layers": layers}


def _format_explanation(found: SettingExplanation) -> str:
    head = f"{found.key}: {found.help}" if found.help else found.key
    if found.values:
        head += f"\n  values: {found.values}"
    if not found.layers:
        return f"{head}\n  (not set)"
    width = max(len(layer) for layer, _ in found.layers)
    lines = [f"  {layer:<{width}}  {_format_value(value)}" for layer, value in found.layers]
    return "\n".join([head, *lines])


def _format_value(value: Any) -> str:
    return "(removed)" if value is ABSENT else msgspec.json.encode(value).decode()
