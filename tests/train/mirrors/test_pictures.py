from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from roost.train.mirrors import pictures
from tests.train.mirrors.recorded import matrix, png


def saved(array: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array))
    return buffer.getvalue()


def test_a_matrix_is_grey_from_its_smallest_to_its_largest_number() -> None:
    data = pictures.of_array(matrix())
    assert np.asarray(Image.open(io.BytesIO(data))).tolist() == [[0, 64], [128, 255]]
    assert pictures.size_of_png(data) == (2, 2)


@pytest.mark.parametrize("array", [[[5, 5, 5]], [[True, False, True]], [[float("nan"), 0.0, float("inf")]]])
def test_odd_matrices_are_pictures_too(array: object) -> None:
    assert pictures.pillow(pictures.of_array(saved(array))).size == (3, 1)


@pytest.mark.parametrize("data", [b"", b"no array", saved([1.0]), saved([["a"]]), saved(np.zeros((0, 2)))])
def test_what_is_no_matrix(data: bytes) -> None:
    with pytest.raises((ValueError, EOFError)):
        pictures.of_array(data)


def test_a_matrix_that_has_its_picture_beside_it(tmp_path: Path) -> None:
    (tmp_path / "m.npy").touch()
    assert not pictures.is_drawn(tmp_path / "m.npy")
    (tmp_path / "m.png").touch()
    assert pictures.is_drawn(tmp_path / "m.npy") and not pictures.is_drawn(tmp_path / "m.png")


def test_size() -> None:
    assert pictures.size_of_png(png(7, 5)) == (7, 5)
    with pytest.raises(ValueError, match="no PNG"):
        pictures.size_of_png(b"GIF89a" + bytes(40))
