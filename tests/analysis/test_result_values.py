"""Whatever a script gives back becomes JSON."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import roost
from roost.analysis.analysis_folder import SavedFiles
from roost.analysis.result_values import MAX_INLINE_ELEMENTS, JsonResult
from roost.base import durable
from roost.package.checkpoints.checkpoint import Manifest
from tests.messages import Messages


class Point(NamedTuple):
    x: float
    y: float


@dataclasses.dataclass
class Score:
    name: str
    value: Any


class Colour(enum.Enum):
    RED = 1


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Broken(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise OSError("nothing here")

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])


def described(value: Any, folder: Path) -> JsonResult:
    """The value, made sure to be strict JSON."""
    found = JsonResult(value, SavedFiles(folder))
    json.loads(json.dumps([found.value, found.nonfinite, found.notes], allow_nan=False))
    return found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        ("text", "text"),
        ((1, [2.5, "x"]), [1, [2.5, "x"]]),
        ({"a": {"b": None}}, {"a": {"b": None}}),
        ({1: "a", None: "b", (2, 3): "c"}, {"1": "a", "None": "b", "(2, 3)": "c"}),
        ({1: "a", "1": "b"}, {"1": "a", "1'": "b"}),
        ({3, 1, 2}, [1, 2, 3]),
        (range(3), [0, 1, 2]),
        (deque([1]), [1]),
        (OrderedDict(a=1), {"a": 1}),
        (Point(1.0, 2.0), {"x": 1.0, "y": 2.0}),
        (Score("f1", torch.tensor(0.5)), {"name": "f1", "value": 0.5}),
        (Path("/a/b"), "/a/b"),
        (torch.tensor(3), 3),
        (torch.tensor([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (torch.zeros(2, requires_grad=True), [0.0, 0.0]),
        (torch.tensor([True]), [True]),
        (torch.eye(2).to_sparse(), [[1.0, 0.0], [0.0, 1.0]]),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.array(["a", "bcd"]), ["a", "bcd"]),
        (np.array(2.0), 2.0),
        ([np.float64(1.5)], [1.5]),
        ("\ud800", "\ud800"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_is_plain_stays(value: Any, expected: Any, tmp_path: Path) -> None:
    found = described(value, tmp_path)
    assert found.value == expected and found.notes == [] and found.nonfinite == {}
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_by_its_fields(tmp_path: Path) -> None:
    found = described(Manifest(id=3, step=7, epoch=1, batch=0), tmp_path)
    assert found.value["id"] == 3 and found.value["line"] == []


def test_what_is_not_finite_is_named_by_its_place(tmp_path: Path) -> None:
    value = {"a": [1.0, float("nan")], "b": torch.tensor([float("-inf"), 2.0])}
    found = described(value, tmp_path)
    assert found.value == {"a": [1.0, None], "b": [None, 2.0]}
    assert found.nonfinite == {"value.a.1": "nan", "value.b.0": "-inf"}


def test_large_arrays_are_files(tmp_path: Path) -> None:
    small, large = np.zeros(MAX_INLINE_ELEMENTS), torch.randn(MAX_INLINE_ELEMENTS + 1)
    found = described({"small": small, "large one/x": large, "deep": [large.double()]}, tmp_path)
    assert len(found.value["small"]) == MAX_INLINE_ELEMENTS
    shape = {"shape": [MAX_INLINE_ELEMENTS + 1]}
    assert found.value["large one/x"] == {"file": "value.large_one_x.npy", **shape, "dtype": "float32"}
    assert found.value["deep"][0] == {"file": "value.deep.0.npy", **shape, "dtype": "float64"}
    assert np.array_equal(np.load(tmp_path / "value.large_one_x.npy"), large.numpy())


def test_types_that_numpy_lacks(tmp_path: Path, messages: Messages) -> None:
    found = described([torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.float8_e5m2)], tmp_path)
    assert found.value == [[1.0, 1.0], [1.0, 1.0]]
    assert re.fullmatch("value.0 .*torch.bfloat16.*float32", found.notes[0])
    messages.check(found.notes[0])
    complex_one = described(torch.tensor([1 + 2j]).conj(), tmp_path).value
    assert complex_one["dtype"] == "complex64" and np.load(tmp_path / complex_one["file"])[0] == 1 - 2j
    longest = described(np.ones(2, np.longdouble), tmp_path).value
    assert np.load(tmp_path / longest["file"]).dtype == np.longdouble


def test_pictures_are_pictures(tmp_path: Path) -> None:
    found = described({"plot": Figure(), "sound": roost.Media("audio", np.zeros(8))}, tmp_path)
    assert found.value == {"plot": {"file": "value.plot.png"}, "sound": {"file": "value.sound.wav"}}
    assert (tmp_path / "value.plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "object"),
        (1j, "complex"),
        (b"bytes", "bytes"),
        (Colour.RED, "tests.analysis.test_result_values.Colour"),
        (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        ((x for x in "ab"), "generator"),
        (np.array([object()]), "numpy.ndarray"),
        (np.array("2020-01-01", dtype="datetime64[D]"), "numpy.datetime64"),
        (torch.empty(2, device="meta"), "torch.Tensor"),
        (roost.Media("image", "no image"), "roost.train.reporting.media_files.Media"),
        (10**30, "int"),
        (10**5000, "int"),
        (Rude(), "tests.analysis.test_result_values.Rude"),
        (Broken(), None),
        ("".join, "builtin_function_or_method"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_anything_else_is_its_repr_and_that_is_said(value: Any, kind: str | None, tmp_path: Path) -> None:
    found = described([value, 1], tmp_path)
    assert found.value[1] == 1 and len(found.notes) == 1 and "repr" in found.notes[0]
    assert kind is None or (found.value[0]["type"] == kind and found.value[0]["repr"])


def test_circles_and_depths_end(tmp_path: Path) -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    assert described(circle, tmp_path).value[1]["type"] == "list"
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    assert described(deep, tmp_path).notes
    shared = [1]
    assert described([shared, shared], tmp_path).value == [[1], [1]], "twice is no circle"
    while isinstance(deep, list):  # or taking it apart would recurse
        deep = deep[0]


def test_thousands_of_odd_values_do_not_flood_the_notes(tmp_path: Path) -> None:
    notes = described([object() for _ in range(500)], tmp_path).notes
    assert len(notes) == 21 and notes[-1] == "… 480 more"


def test_a_full_disk_is_no_odd_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(operation: str, path: str) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(durable, "fault", full)
    with pytest.raises(OSError, match="No space left"):
        JsonResult({"a": torch.zeros(5000)}, SavedFiles(tmp_path))
