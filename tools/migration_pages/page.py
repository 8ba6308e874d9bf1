"""A page with the equivalent setting or command for every option of another trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roost.config import settings
from roost.config.other_tools.option_tables.option_table import Group
from tools import settings_page

_HEAD = ("there", "default there", "here", "values", "default here", "what it is")
SAMPLE: dict[str, Any] = {
    "runner": {
        "model": {"class": ""},
        "losses": {"NAME": {"class": ""}},
        "metrics": {"NAME": {"class": ""}},
    },
    "dataset": {"train": {}},
    "data": {"mix": {}},
    "options": {"NAME": {"type": "int"}},
    "init_from": {"path": ""},
    "optimizers": {"NAME": {"class": "", "groups": [{}], "scheduler": {"class": ""}}},
    "early_stopping": {},
    "averages": {"NAME": {}},
    "mirrors": {"tensorboard": {}},
}
"""A config with every section that a page mentions."""


class Page(NamedTuple):
    """A page: its introduction, its tables, and other differences."""

    title: str
    text: str
    groups: Sequence[Group]
    differences: Sequence[str]
    schema: Any = settings
    """The module that describes the settings."""
    differences_heading: str = "What does not happen here"

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The defaults of the settings."""
        own: Mapping[str, Any] = (
            settings.defaults(SAMPLE) if self.schema is settings else self.schema.all_defaults()
        )
        return own


def markdown(page: Page) -> str:
    """Returns the page. Types, defaults and help are those of the settings."""
    tables = [f"## {group.heading}\n\n{_table(list(_rows(group, page)))}" for group in page.groups]
    differences = "".join(f"- {line}\n" for line in page.differences)
    parts = [f"# {page.title}\n", page.text, *tables, f"## {page.differences_heading}\n\n{differences}"]
    return "\n".join(parts)


def help_of(key: str, schema: Any = settings) -> str | None:
    """Returns the help of a setting; None for an unknown setting."""
    found: str | None = schema.describe(_numbered(key))
    return found


def _numbered(key: str) -> str:
    return ".".join("0" if name == "N" else name for name in key.split("."))


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Returns a table without the columns that no row uses."""
    used = [number for number in range(len(_HEAD)) if any(row[number] for row in rows)]
    head, *lines = (f"| {' | '.join(row[number] for number in used)} |\n" for row in (_HEAD, *rows))
    return f"{head}{'|---' * len(used)}|\n{''.join(lines)}"


def _rows(group: Group, page: Page) -> Iterator[tuple[str, ...]]:
    """Yields the rows of a group: the first row of an option names it; further settings have rows of their
    own."""
    for option in group.options:
        commands = "<br>".join(f"`{command}`" for command in option.commands)
        first = (f"`{option.name}`", option.default)
        if not option.keys:
            yield (*first, commands or group.nothing_here, "", "", option.note)
        for number, key in enumerate(option.keys):
            cells = _cells(key, page)
            if number == 0:
                what = "; ".join(filter(None, (cells[-1], option.note)))
                yield (*first, "<br>".join(filter(None, (cells[0], commands))), *cells[1:3], what)
            else:
                yield ("", "", *cells)


def _cells(key: str, page: Page) -> tuple[str, str, str, str]:
    """Returns the cells of a setting: its key, values, default and help."""
    values = page.schema.allowed_values(_numbered(key)) or ""
    return (
        f"`{key}`",
        values,
        settings_page.default(key, page.defaults),
        help_of(key, page.schema) or "",
    )
