"""Pictures of settings: what a reader must find, read from the SVG."""

from __future__ import annotations

import re

import matplotlib as mpl
import pytest
from msgspec.structs import replace

from roost.operations.plots.setting_drawing import draw_parallel, draw_scatter
from roost.operations.plots.setting_points import SettingAxis, SettingPoints

POINTS = SettingPoints(
    runs=["a", "b", "c"],
    keys=[
        SettingAxis("lr", [0.001, 0.1, 0.1], [], True),
        SettingAxis("optimizer", [0, 1, 1], ["Adam", "SGD"], False),
        SettingAxis("same", [1, 1, 1], [], False),
    ],
    metrics=[
        SettingAxis("valid/loss", [1.0, 2.0, 4.0], [], False),
        SettingAxis("x", [3.0, 2.0, 4.0], [], False),
    ],
    left_out=[],
    notes=[],
)


def texts(svg: bytes) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg.decode())


def test_a_panel_for_each_setting_and_metric() -> None:
    with mpl.rc_context({"svg.fonttype": "none"}):
        found = texts(draw_scatter(POINTS, "svg"))
    assert {"lr", "optimizer", "Adam", "SGD", "valid/loss"} <= set(found)
    assert found.count("valid/loss") == found.count("x") == 3


def test_whole_numbers_have_whole_ticks() -> None:
    metric = SettingAxis("valid/loss", [1.5, 2.25, 4.125], [], False)
    points = replace(POINTS, keys=[SettingAxis("seed", [0, 1, 2], [], False)], metrics=[metric])
    with mpl.rc_context({"svg.fonttype": "none"}):
        found = texts(draw_scatter(points, "svg"))
    assert {"0", "1", "2"} <= set(found) and "0.5" not in found


def test_a_line_for_each_run_through_all_axes() -> None:
    with mpl.rc_context({"svg.fonttype": "none"}):
        svg = draw_parallel(POINTS, "svg")
    assert {"lr", "optimizer", "same", "valid/loss", "0.001", "0.1", "Adam", "SGD", "4"} <= set(texts(svg))
    lines = re.findall(
        r'<path d="M[^"]*L[^"]*L[^"]*L[^"]*"[^>]*style="fill: none; stroke: (#\w+)', svg.decode()
    )
    assert len(lines) == 6 and len(set(lines[:3])) == 3, "in a colour by the metric"


@pytest.mark.parametrize("draw", [draw_scatter, draw_parallel])
def test_strange_names_and_one_run(draw: object) -> None:
    strange = '<script>"&\x1b[31m$x^{'
    one = SettingPoints(
        runs=[strange],
        keys=[SettingAxis(strange, [0], [strange], False)],
        metrics=[SettingAxis(strange, [1e300], [], False)],
        left_out=[],
        notes=[],
    )
    svg = draw(one, "svg")  # type: ignore[operator]
    assert b"<script" not in svg and b"\x1b" not in svg
    assert draw(one, "png").startswith(b"\x89PNG")  # type: ignore[operator]


def test_many_runs_and_categories() -> None:
    many = SettingPoints(
        runs=[str(n) for n in range(300)],
        keys=[
            SettingAxis("name", [float(n) for n in range(300)], [f"category {n}" for n in range(300)], False),
            SettingAxis("lr", [10.0**-n for n in range(300)], [], True),
        ],
        metrics=[SettingAxis("m", [n * 0.37 for n in range(300)], [], False)],
        left_out=[],
        notes=[],
    )
    with mpl.rc_context({"svg.fonttype": "none"}):
        for draw in (draw_scatter, draw_parallel):
            assert sum(text.startswith("category") for text in texts(draw(many, "svg"))) <= 24
