"""The tables of ``docs/coming-from.md``: ``python -m tools.coming_from_page`` renews them in that page.

The text between a line such as ``<!-- keys: TOOL -->`` and ``<!-- end -->`` is made from the tables by which
roost recognises the configs, commands and options of other tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from roost.cli.other_tools.other_commands import OTHER_COMMANDS
from roost.cli.other_tools.other_options import OTHER_OPTIONS, OtherOption
from roost.config.other_tools.known_tools import COMMON_NAMES, TOOLS

PAGE = Path(__file__).parents[1] / "docs" / "coming-from.md"
_TABLE = re.compile(r"(<!-- (keys|commands|options|names): (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def renewed(text: str) -> str:
    """Returns the page with renewed tables.

    Raises:
        KeyError: A table is of an unknown tool or section.
    """
    return _TABLE.sub(lambda found: f"{found[1]}{_table(found[2], found[3])}{found[4]}", text)


def _table(kind: str, name: str) -> str:
    head, rows = _TABLES[kind](name)
    cells = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in cells)


def _keys(name: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    tool = {tool.name: tool for tool in TOOLS}[name]
    return ("there", "here"), [(f"`{key.removeprefix('*.')}`", here) for key, here in tool.keys.items()]


def _commands(section: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows = OTHER_COMMANDS[section]
    return ("there", "here", ""), [(f"`{row.typed}`", f"`{row.here}`", row.note) for row in rows]


def _options(section: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    return ("there", "here", ""), [_option_row(row) for row in OTHER_OPTIONS[section]]


def _option_row(row: OtherOption) -> tuple[str, ...]:
    first, *others = row.names
    names = [f"{first} {row.example}".rstrip(), *others]
    command = f"`roost {'`, `roost '.join(row.commands)}`: " if row.commands else ""
    here = row.written(row.example)
    return ", ".join(f"`{one}`" for one in names), f"{command}`{here}`" if here else f"{command}–", row.note


def _names(_: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    return ("names in scripts", "here"), list(_name_rows())


def _name_rows() -> Iterator[tuple[str, str]]:
    for here, names in COMMON_NAMES.items():
        yield ", ".join(f"`{name}`" for name in names), f"`{here}`"


_TABLES = {"keys": _keys, "commands": _commands, "options": _options, "names": _names}

if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
