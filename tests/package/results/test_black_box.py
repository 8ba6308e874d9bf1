"""Reading black boxes, without torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.base import durable
from roost.base.errors import NotFound
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.results import black_box
from roost.package.results.black_box import FailureNote
from tests.messages import Messages


def box(folder: Path, id: int, step: int, *, error: str = "ValueError: no", **parts: Any) -> Path:
    """A box with these parts beside its note."""
    if not folder.exists():
        durable.make_folder(folder)
    note = FailureNote(step=step, epoch=0, batch=step - 1, samples=[3, 1], error=error)
    checkpoint.write(
        folder, {**parts, "note": msgspec.to_builtins(note)}, Manifest(id=id, step=step - 1, epoch=0, batch=0)
    )
    return checkpoint.checkpoint_folder(folder, id)


def test_the_newest_and_that_of_a_step(tmp_path: Path) -> None:
    folder = tmp_path / "blackbox"
    assert black_box.newest_box(folder) is None and black_box.newest_box_of_step(folder, 7) is None
    first, again, other = box(folder, 0, 7), box(folder, 1, 7), box(folder, 2, 9)
    found = black_box.newest_box(folder)
    assert found is not None and found.path == other
    assert found.note == FailureNote(step=9, epoch=0, batch=8, samples=[3, 1], error="ValueError: no")
    of_step = black_box.newest_box_of_step(folder, 7)
    assert of_step is not None and of_step.path == again != first
    assert black_box.newest_box_of_step(folder, 8) is None


def test_where_in_the_data_a_step_lies(messages: Messages) -> None:
    note = FailureNote(step=3, epoch=2, batch=12, samples=[5, 1])
    messages.check(note.location)
    assert re.findall(r"\d+", note.location) == ["3", "13", "5", "1"]
    many = FailureNote(step=3, epoch=2, batch=12, num_batches=4, samples=list(range(40)))
    messages.check(many.location)
    assert re.findall(r"\d+", many.location) == ["3", "4", "13", *map(str, range(8)), "40"]


def test_what_it_holds(tmp_path: Path) -> None:
    folder = tmp_path / "blackbox"
    state: dict[str, Any] = {name: {} for name in black_box.STATE}
    box(folder, 0, 1)
    box(folder, 1, 2, batch={"window": [1]})
    box(folder, 2, 3, **state)
    box(folder, 3, 4, **{**state, "batch": {"window": [1]}})
    box(folder, 4, 5, model={})
    found = [(one.has_state, one.has_batch) for one in black_box.read_boxes(folder)]
    assert found == [(False, False), (True, True), (True, False), (False, True), (False, False)]


@pytest.mark.parametrize("name", ["MANIFEST.json", "note.json"])
def test_a_damaged_one_is_passed_over(tmp_path: Path, name: str, messages: Messages) -> None:
    folder = tmp_path / "blackbox"
    good, bad = box(folder, 0, 7), box(folder, 1, 8)
    data = bytearray((bad / name).read_bytes())
    data[len(data) // 2] ^= 1
    (bad / name).write_bytes(data)
    found = black_box.newest_box(folder)
    assert found is not None and found.path == good
    with pytest.raises(NotFound) as refused:
        black_box.find_box(folder, bad.name)
    messages.check(refused.value)
    assert "state_1.ckpt" in str(refused.value)
    assert black_box.find_box(folder, good.name) == found


def test_a_note_of_another_kind_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "blackbox"
    good = box(folder, 0, 7)
    checkpoint.write(folder, {"note": {"step": "seven"}}, Manifest(id=1, step=6, epoch=0, batch=0))
    found = black_box.newest_box(folder)
    assert found is not None and found.path == good
