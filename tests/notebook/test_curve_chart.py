"""The curves in a cell: small, well-formed, and harmless."""

from __future__ import annotations

import math
import re
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from roost.notebook.curve_chart import chart_image
from roost.operations.plots.plot_panels import Panel, Picture, PlotCurve, build_picture
from tests.operations.packages import package

SVG = "{http://www.w3.org/2000/svg}"


def drawn(panels: list[Panel]) -> ElementTree.Element:
    """The picture as a browser reads it."""
    found = re.search(r' src="data:image/svg\+xml,([^"]*)">$', chart_image(Picture(panels, [], [], [])))
    assert found is not None
    return ElementTree.fromstring(unquote(found[1]))


def curve(x: list[float], y: list[float], split: str = "train", part: str = "") -> PlotCurve:
    return PlotCurve(0, split, part, x, y, [])


def points(line: ElementTree.Element) -> list[tuple[float, float]]:
    pairs = (one.split(",") for one in line.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]


def test_the_curves_of_a_run(tmp_path: Path) -> None:
    image = chart_image(build_picture([package(tmp_path)]))
    assert 'alt="curves: loss, lr"' in image and len(image) < 4000
    svg = ElementTree.fromstring(unquote(image.partition("svg+xml,")[2].removesuffix('">')))
    assert len(svg.findall(f".//{SVG}polyline")) == 3 and len(svg.findall(f".//{SVG}circle")) == 1
    texts = " ".join(svg.itertext())
    assert "train 0.5" in texts and "valid 0.75" in texts and "test 0.7" in texts


def test_a_long_curve_keeps_its_extremes_in_few_points() -> None:
    x = [float(step) for step in range(100_000)]
    y = [1.0 + (step % 7) / 10 for step in range(100_000)]
    y[12_345] = 50.0
    (line,) = drawn([Panel("accuracy", [curve(x, y)])]).iter(f"{SVG}polyline")
    found = points(line)
    assert len(found) <= 4 * 80
    assert min(height for _, height in found) == 22.0, "the peak is at the upper edge"
    assert [at for at, _ in found] == sorted(at for at, _ in found)


@pytest.mark.parametrize("y", [[3.0], [2.0, 2.0], [1e-300, 1e300], [-1.0, 0.0, 1e-9]])
def test_any_values_have_a_place(y: list[float]) -> None:
    x = [float(step) for step in range(len(y))]
    for logarithmic in (False, True):
        svg = drawn([Panel("loss", [curve(x, y)], logarithmic=logarithmic)])
        places = [pair for line in svg.iter(f"{SVG}polyline") for pair in points(line)]
        places += [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in svg.iter(f"{SVG}circle")]
        assert places and all(
            math.isfinite(number) and 0 <= number <= 350 for pair in places for number in pair
        )


def test_hostile_names_are_text() -> None:
    name = "</text><script>alert('1')</script>\" onload=\"\x1b[2J‮" + "x" * 1000
    panels = [Panel(name, [curve([0.0, 1.0], [0.0, 1.0], name, name)])]
    image = chart_image(Picture(panels, [], [], []))
    assert image.count("<") == image.count(">") == 1 and image.count('"') == 8 and len(image) < 4000
    assert {one.tag.removeprefix(SVG) for one in drawn(panels).iter()} == {
        "svg", "g", "path", "text", "tspan", "polyline"
    }  # fmt: skip


def test_names_and_numbers_have_room_in_their_panel() -> None:
    curves = [curve([0.0, 1_234_567.0], [-0.000488, 1.0], "valid", "x" * length) for length in (2, 20, 3, 40)]
    svg = drawn([Panel("accuracy", curves)])
    texts = ["".join(one.itertext()) for one in svg.iter(f"{SVG}text")]
    assert "1,234,567" in texts and "-0.000488" in texts
    title = next(one for one in texts if one.startswith("accuracy"))
    assert title == "accuracyvalid/xx 1………", "the curves without room have their colour alone"
    (left,) = (one for one in svg.iter(f"{SVG}text") if one.text == "-0.000488")
    assert float(left.attrib["x"]) >= 7 * len("-0.000488"), "as wide as DejaVu Sans draws it"


def test_many_panels_and_curves_are_bounded() -> None:
    x = [float(step) for step in range(10_000)]
    y = [float(step * 7919 % 997) for step in range(10_000)]
    panels = [Panel(f"m{n}", [curve(x, y, "valid", f"set{c}") for c in range(30)]) for n in range(30)]
    assert len(chart_image(Picture(panels, [], [], []))) < 100_000
    assert chart_image(Picture([], [], [], [])) == ""
