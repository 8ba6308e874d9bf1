"""Figures as files."""

from __future__ import annotations

from typing import Any

import pytest

from roost.operations.plots.picture_file import AUTHOR, KINDS, label_text, picture_bytes


def draw(figure: Any) -> None:
    figure.subplots().set_title("a title")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_names_its_author_and_is_the_same_each_time(kind: str) -> None:
    found = picture_bytes(draw, kind, 2.0, 1.0)
    assert AUTHOR.encode() in found
    if kind == "png":
        assert found == picture_bytes(draw, kind, 2.0, 1.0)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("lr", "lr"),
        ("two\nlines\tand", "two lines and"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("$x^{", r"\$x^{"),
        ("a" * 60, "a" * 60),
        ("a" * 50 + "z" * 50, "a" * 30 + "…" + "z" * 29),
    ],
)
def test_labels(name: str, label: str) -> None:
    assert label_text(name) == label
