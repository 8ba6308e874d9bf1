"""The page for people of other tools has the tables by which roost answers them."""

from __future__ import annotations

import re

import pytest

from roost.cli.other_tools.other_commands import OTHER_COMMANDS
from roost.cli.other_tools.other_options import OTHER_OPTIONS
from roost.config.other_tools.known_tools import TOOLS, Tool
from tests.test_docs import ROOT, anchors
from tools import coming_from_page


def test_the_tables_are_renewed() -> None:
    text = coming_from_page.PAGE.read_text()
    assert coming_from_page.renewed(text) == text, "python -m tools.coming_from_page"


def test_every_tool_command_and_option_is_on_the_page() -> None:
    text = coming_from_page.PAGE.read_text()
    shown = re.findall(r"<!-- (keys|commands|options): (.*?) -->", text)
    own = {tool.name for tool in TOOLS if tool.page.startswith("docs/coming-from.md")}
    assert {name for kind, name in shown if kind == "keys"} == own
    assert {name for kind, name in shown if kind == "commands"} == OTHER_COMMANDS.keys()
    assert {name for kind, name in shown if kind == "options"} == OTHER_OPTIONS.keys()


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_an_error_names_a_section_that_exists(tool: Tool) -> None:
    page, _, anchor = tool.page.partition("#")
    assert not anchor or anchor in anchors((ROOT / page).read_text())


def test_another_table_is_an_error() -> None:
    with pytest.raises(KeyError):
        coming_from_page.renewed("<!-- keys: Nothing -->\n<!-- end -->")
