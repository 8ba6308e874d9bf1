"""How it is drawn: what a reader must find in the picture, read from the SVG."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl

from roost.operations.curves import picture
from roost.operations.drawing import draw
from tests.operations.packages import ROWS, package, record_rows, session


def texts(svg: bytes) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg.decode())


def test_one_package(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    session(made, "succeeded")
    record_rows(made, 2, 30, [{"step": 40, "epoch": 4, "train/loss": float("nan"), "train/accuracy": 1.0}])
    with mpl.rc_context({"svg.fonttype": "none"}):
        found = texts(draw(picture([made]), "svg"))
    assert {"loss", "accuracy", "lr", "step", "epoch"} <= set(found)
    legend = ["train", "valid", "test", "checkpoint", "best checkpoint", "continued", "not finite"]
    assert [text for text in found if text in legend] == legend


def test_several_packages_are_told_apart_by_name(tmp_path: Path) -> None:
    made = [package(tmp_path / "runs", name) for name in ("first", "second")]
    with mpl.rc_context({"svg.fonttype": "none"}):
        found = texts(draw(picture(made), "svg"))
    assert {"first", "second", "train", "valid"} <= set(found)


def test_long_names_leave_room_for_the_curves(tmp_path: Path) -> None:
    made = [
        package(tmp_path / "runs", f"{i} a rather long description of what was tried here") for i in range(9)
    ]
    assert draw(picture(made), "png").startswith(
        b"\x89PNG"
    )  # a squeezed panel warns, which pytest makes an error


def test_many_panels_and_a_single_point(tmp_path: Path) -> None:
    row = {**ROWS[0], **{f"train/metric{i}": float(i) for i in range(7)}}
    assert draw(picture([package(tmp_path / "runs", rows=[row])]), "png").startswith(b"\x89PNG")


def test_the_same_picture_every_time(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert draw(picture([made]), "png") == draw(picture([made]), "png")
