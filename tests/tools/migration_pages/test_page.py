"""How an option of another trainer becomes a row, and what the pages in docs/ promise."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from roost.cli.__main__ import COMMANDS, roost
from roost.config import settings
from roost.config.other_tools.option_tables.option_table import Group, Option
from roost.operations.lifecycle.new_project import TEMPLATES
from tools.migration_pages.__main__ import PAGES, main
from tools.migration_pages.page import Page, help_of, markdown

DOCS = Path(__file__).parents[3] / "docs"


def options() -> Iterator[Option]:
    for _, page in PAGES.values():
        for group in page.groups:
            yield from group.options


def typed() -> Iterator[str]:
    """Everything on the pages that is typed at a prompt."""
    for option in options():
        yield from option.commands
    for _, page in PAGES.values():
        yield from re.findall(r"`(roost [^`]*)`", markdown(page))


@pytest.mark.parametrize("name", PAGES)
def test_the_page_in_docs_is_what_the_program_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([name])
    page = DOCS / PAGES[name][0]
    assert page.read_text() == capsys.readouterr().out, (
        f"python -m tools.migration_pages {name} > docs/{page.name}"
    )


def test_the_program_as_it_is_typed() -> None:
    command = [sys.executable, "-m", "tools.migration_pages", "cornernet"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == (DOCS / "from-cornernet.md").read_text()


@pytest.mark.parametrize("given", [[], ["libai"], ["cornernet", "speechain"]])
def test_another_name_is_answered_with_those_that_are(given: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == "usage: python -m tools.migration_pages cornernet|dlnest|speechain"


def test_every_setting_that_is_named_exists() -> None:
    for _, page in PAGES.values():
        every = {key for group in page.groups for option in group.options for key in option.keys}
        assert every and not [key for key in every if help_of(key, page.schema) is None]
    named = {key for option in options() for key in option.keys}
    # An argument of a class exists for any name: those that are relied on are listed.
    arguments = {key for key in named if help_of(key) == help_of("optimizers.NAME.lr")}
    assert {key.rpartition("optimizers.NAME.")[-1] for key in arguments} == {
        "lr",
        "scheduler.gamma",
        "scheduler.step_size",
    }


def test_every_command_that_is_named_exists_with_its_options() -> None:
    seen = set()
    for line in typed():
        words = line.split()
        assert words[:1] == ["roost"] and (len(words) == 1 or words[1] in COMMANDS), line
        if len(words) == 1:
            continue
        command = roost.get_command(click.Context(roost), words[1])
        assert command is not None
        known = {flag for one in command.params for flag in one.opts} | {"--help"}
        asked = {word for word in words[2:] if word.startswith("-")}
        assert asked <= known, line
        seen.add(words[1])
        if "-t" in words:
            assert words[words.index("-t") + 1] in TEMPLATES, line
    assert {"run", "continue", "fork", "check", "analyze", "export", "predict"} <= seen


def test_an_option_without_a_setting_or_a_command_says_why() -> None:
    empty = [option for option in options() if not option.keys and not option.commands]
    assert empty and all(option.note for option in empty)


def test_no_cell_breaks_its_table() -> None:
    for _, page in PAGES.values():
        for table in re.findall(r"(?:^\|.*\n)+", markdown(page), re.MULTILINE):
            assert len({len(re.split(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def test_a_row_takes_type_default_and_help_from_the_settings() -> None:
    option = Option(
        "keep", "1", ["checkpoint.fast", "checkpoint.best.N.top_k"], ["roost run"], "newest first"
    )
    lines = markdown(Page("Title", "Text\n", [Group("Heading", [option])], ["No bug."])).splitlines()
    values, help = settings.allowed_values("checkpoint.fast"), settings.describe("checkpoint.fast")
    assert lines[0] == "# Title" and "## Heading" in lines and lines[-1] == "- No bug."
    assert (
        f"| `keep` | 1 | `checkpoint.fast`<br>`roost run` | {values} | `2` | {help}; newest first |" in lines
    )
    values, help = (
        settings.allowed_values("checkpoint.best.0.top_k"),
        settings.describe("checkpoint.best.0.top_k"),
    )
    assert f"|  |  | `checkpoint.best.N.top_k` | {values} |  | {help} |" in lines


def test_a_missing_key_is_distinguished() -> None:
    assert (
        help_of("checkpoint.fast") and help_of("checkpoint.quick") is None and help_of("optimizers.NAME.lr")
    )
