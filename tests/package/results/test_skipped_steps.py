"""The steps that were passed over, as sessions write them and a reader folds them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from roost.base import durable
from roost.package.results import skipped_steps
from roost.package.results.skipped_steps import Kind, SkippedStep


def step_of(step: int, session: int = 1, kind: Kind = "error") -> SkippedStep:
    return SkippedStep(
        session=session, step=step, epoch=0, batch=step - 1, kind=kind, error="no good", samples=[step, 7]
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / skipped_steps.NAME


def seen(file: Path, *starts: tuple[int, int]) -> list[tuple[int, int]]:
    return [(one.session, one.step) for one in skipped_steps.read(file, starts)]


def test_each_is_one_readable_line(file: Path) -> None:
    skipped_steps.append(file, step_of(3))
    skipped_steps.append(file, step_of(5, kind="nonfinite"))
    first, second = map(json.loads, file.read_text().splitlines())
    assert first == {
        "session": 1, "step": 3, "epoch": 0, "batch": 2, "kind": "error", "error": "no good",
        "samples": [3, 7],
    }  # fmt: skip
    assert second["kind"] == "nonfinite"
    assert skipped_steps.read(file) == [step_of(3), step_of(5, kind="nonfinite")]


def test_without_a_file_there_are_none(file: Path) -> None:
    assert skipped_steps.read(file) == []
    skipped_steps.append_rewind(file, session=1, step=2)
    assert not file.exists()


def test_what_a_later_session_went_on_from_before_does_not_count(file: Path) -> None:
    for step in (3, 5, 8):
        skipped_steps.append(file, step_of(step))
    assert seen(file, (1, 0), (2, 5)) == [(1, 3), (1, 5)]
    skipped_steps.append(file, step_of(8, session=2))
    assert seen(file, (1, 0), (2, 5)) == [(1, 3), (1, 5), (2, 8)]
    assert seen(file, (1, 0), (2, 5), (3, 2)) == []


def test_what_a_session_went_back_behind_does_not_count(file: Path) -> None:
    skipped_steps.append(file, step_of(2, session=1))
    for step in (5, 6):
        skipped_steps.append(file, step_of(step, session=2))
    skipped_steps.append_rewind(file, session=2, step=5)
    assert seen(file, (1, 0), (2, 3)) == [(1, 2), (2, 5)]
    skipped_steps.append(file, step_of(7, session=2, kind="rollback"))
    assert seen(file, (1, 0), (2, 3)) == [(1, 2), (2, 5), (2, 7)]


def test_a_step_that_was_met_twice_counts_once(file: Path) -> None:
    for _ in range(2):
        skipped_steps.append(file, step_of(5))
    assert seen(file) == [(1, 5)]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"step": 3}',
        b"\xff\xfe",
        b'{"session": 1, "start_step": "x"}',
        b"[" * 9999,
    ],
)
def test_a_line_that_is_none_is_passed_over(file: Path, line: bytes) -> None:
    skipped_steps.append(file, step_of(3))
    with file.open("ab") as opened:
        opened.write(line + b"\n")
    skipped_steps.append(file, step_of(5))
    assert seen(file) == [(1, 3), (1, 5)]


def test_after_half_a_line_the_next_begins_anew(file: Path) -> None:
    skipped_steps.append(file, step_of(3))
    with file.open("ab") as opened:
        opened.write(b'{"session": 1, "st')
    skipped_steps.append(file, step_of(5))
    assert seen(file) == [(1, 3), (1, 5)]
    assert file.read_bytes().endswith(b"}\n") and b"\n\n" not in file.read_bytes()


@pytest.mark.parametrize("what", ["folder", "fifo"])
def test_what_is_no_file_holds_none(file: Path, what: str) -> None:
    file.mkdir() if what == "folder" else os.mkfifo(file)
    assert skipped_steps.read(file) == []


def test_a_full_disk_is_an_error_for_the_writer(file: Path) -> None:
    def full(operation: str, path: Any) -> None:
        raise OSError(errno.ENOSPC, operation)

    durable.fault = full
    try:
        with pytest.raises(OSError, match="open"):
            skipped_steps.append(file, step_of(3))
    finally:
        durable.fault = None
