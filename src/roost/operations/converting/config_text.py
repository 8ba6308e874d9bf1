"""A config as YAML, with comments behind its keys."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from roost.base.config_files import parse_scalar

_PLAIN = re.compile(r"[\w./][\w./-]*(\.py:\w+)?")
_WIDTH = 88


def config_text(values: Mapping[str, Any], comments: Mapping[str, str], *, head: str = "") -> str:
    """Returns values as the text of a YAML file, whose reader gets the same values.

    Args:
        values: Nested mappings, lists and single values.
        comments: Comments by dotted keys, behind the line of the key.
        head: Comment lines at the top, without ``#``.
    """
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    for number, (key, value) in enumerate(values.items()):
        if (isinstance(value, Mapping) and value) or (number == 0 and lines):
            lines.append("")
        lines += _mapping_lines({key: value}, "", (), comments)
    return "\n".join(lines) + "\n"


def _mapping_lines(
    values: Mapping[str, Any], indent: str, path: tuple[str, ...], comments: Mapping[str, str]
) -> Iterator[str]:
    for key, value in values.items():
        inner = (*path, key)
        comment = comments.get(".".join(inner))
        behind = "" if comment is None else f"  # {' '.join(comment.split())}"
        start = f"{indent}{_scalar(key)}:"
        if isinstance(value, Mapping | list) and value and not _fits(value, indent):
            yield start + behind
            yield from _block_lines(value, f"{indent}  ", inner, comments)
        else:
            yield f"{start} {_flow(value)}".ljust(len(behind) and 52) + behind


def _fits(value: Any, indent: str) -> bool:
    """Whether a value is written on one line: a short list, or a mapping in a list."""
    return isinstance(value, list) and len(indent) + len(_flow(value)) < _WIDTH


def _block_lines(
    value: Any, indent: str, path: tuple[str, ...], comments: Mapping[str, str]
) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _mapping_lines(value, indent, path, comments)
        return
    for one in value:
        if isinstance(one, Mapping | list) and one and len(_flow(one)) > _WIDTH:
            first, *others = _block_lines(one, f"{indent}  ", path, {})
            yield f"{indent}- {first.lstrip()}"
            yield from others
        else:
            yield f"{indent}- {_flow(one)}"


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_scalar(key)}: {_flow(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if not isinstance(value, str):
        return json.dumps(value)
    is_plain = _PLAIN.fullmatch(value) is not None and parse_scalar(value) == value
    return value if is_plain else "".join(map(_escaped, json.dumps(value, ensure_ascii=False)))


def _escaped(character: str) -> str:
    # JSON's pairs of surrogates are no escapes of YAML.
    return character if character.isprintable() else f"\\U{ord(character):08X}"
