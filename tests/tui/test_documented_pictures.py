"""The pictures of docs/guide/client.md are screens of the client; `--update-screens` renews them."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from roost.tui.client_app import RoostClient
from tests.tui.driving import client_on, drive, press, settle
from tests.tui.generated_lab import small_lab

DOCS = Path(__file__).parents[2] / "docs"
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
_PLACED = re.compile(
    r'<text class="(?P<kind>[^"]*)" x="(?P<x>[^"]*)" y="(?P<y>[^"]*)" textLength="(?P<length>[^"]*)"'
    r' clip-path="(?P<clip>[^"]*)">(?P<text>[^<]*)</text>'
)
_TEXT = re.compile(r"<text [^>]*>([^<]*)</text>")

PICTURES = {
    "client-dark": ((140, 44), "dark", ("j",)),
    "client-light": ((140, 44), "light", ("space", "space", "c")),
    "client-80x24": ((80, 24), "dark", ()),
}


_ANALYZER_OUTPUT = (
    "\x1b[1manalysis 3: confusion\x1b[0m\n"
    "        cat    dog   frog\n"
    "cat     912     71     17\n"
    "dog      88    897     15\n"
    "frog     11      9    980\n"
    "\x1b[32manalysis 3: succeeded in 0.12 s\x1b[0m\n"
)
_CELL = 12.2
"""Units of a character in Textual's pictures."""


def _without_margin(found: re.Match[str]) -> str:
    """A text without the blanks at its beginning, which some programs that show SVG leave out."""
    x, y, length, text = float(found["x"]), found["y"], float(found["length"]), found["text"]
    bare = re.sub("^(&#160;)+", "", text)
    shift = (len(text) - len(bare)) // len("&#160;") * _CELL
    if not bare:
        return ""
    place = f'x="{x + shift:.1f}" y="{y}" textLength="{length - shift:.1f}"'
    return f'<text class="{found["kind"]}" {place} clip-path="{found["clip"]}">{bare}</text>'


def _words(svg: str) -> set[str]:
    """The words of a picture, without the dots and blocks of curves and bars."""
    found = " ".join(html.unescape(one) for one in _TEXT.findall(svg)).replace("\xa0", " ").split()
    return {word for word in found if word.isascii()}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_the_client(name: str, request: pytest.FixtureRequest) -> None:
    size, theme, keys = PICTURES[name]

    async def body() -> None:
        async with client_on(small_lab(), size, theme=theme) as pilot:
            assert isinstance(pilot.app, RoostClient)
            pilot.app.view.watched = "A_14"
            pilot.app.analyzer.border_title = "F3 Analyzer output · A_14"
            pilot.app.analyzer.write(_ANALYZER_OUTPUT)
            await press(pilot, *keys)
            await settle(pilot)
            svg = _FONT_FACE.sub("", pilot.app.export_screenshot(title="roost client", simplify=True))
            svg = _PLACED.sub(_without_margin, svg)
        file = DOCS / f"{name}.svg"
        if request.config.getoption("--update-screens"):
            file.write_text(svg, encoding="utf-8")
        assert _words(file.read_text(encoding="utf-8")) == _words(svg), "renew it with --update-screens"

    drive(body)
