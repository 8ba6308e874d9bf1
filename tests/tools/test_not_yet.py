"""Each "not yet" of the pages has a probe, which fails when the thing exists: then the page is to change."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from roost.cli.__main__ import COMMANDS
from roost.config import settings
from roost.serve.app import ROUTES

DOCS = Path(__file__).parents[2] / "docs"
LEGEND = "*not yet*"


def has_setting(*words: str) -> bool:
    """Whether one of the words is in the name of a setting."""
    known = settings.known_keys({"optimizers": {"main": {}}})
    return any(word in key for word in words for key in known)


def has_command(name: str) -> bool:
    return name in COMMANDS


def has_route(*names: str) -> bool:
    return any(name in one.name for name in names for one in ROUTES)


EXISTS: dict[tuple[str, str], Callable[[], bool]] = {
    ("from-cornernet.md", "chunk_sizes"): lambda: has_setting("chunk", "share_of", "rank_batch"),
    ("server.md", "roost fork"): lambda: has_route("fork"),
}
"""Whether what a row calls missing exists, by the page and the first name of the row."""


def promised() -> set[tuple[str, str]]:
    """The pages and rows, or other lines, with a "not yet"."""
    found = set()
    for page in [*DOCS.rglob("*.md"), *(DOCS.parent / name for name in ("README.md", "SECURITY.md"))]:
        for line in page.read_text().splitlines():
            if re.search(r"\bnot yet\b", line.replace(LEGEND, "")):
                name = re.search(r"`([^`]+)`", line)
                found.add((page.name, name[1] if name is not None else line))
    return found


def test_each_not_yet_has_a_probe() -> None:
    assert promised() == EXISTS.keys()


@pytest.mark.parametrize("row", EXISTS, ids="/".join)
def test_what_a_page_calls_missing_does_not_exist(row: tuple[str, str]) -> None:
    assert not EXISTS[row](), f"it exists: change docs/{row[0]}"


def test_a_probe_finds_what_exists() -> None:
    assert has_setting("early_stopping") and has_command("analyze") and has_route("submit")
