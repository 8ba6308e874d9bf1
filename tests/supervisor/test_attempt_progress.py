from __future__ import annotations

import json
from pathlib import Path

import pytest

from roost.supervisor import attempt_progress
from roost.supervisor.attempt_progress import AttemptProgress as Attempt
from roost.supervisor.attempt_progress import is_automatic, stuck_text
from tests.messages import Messages

NOTHING = Attempt(None, None)


@pytest.mark.parametrize(
    "oldest_first",
    [
        [Attempt(40, 30)] * 3,
        [Attempt(10, None), Attempt(40, 30), Attempt(40, 30), Attempt(40, 30)],
        [NOTHING] * 3,
        [Attempt(40, 30), Attempt(38, 30), Attempt(40, 30), Attempt(31, 30), Attempt(39, 30)],
    ],
)
def test_stuck_attempts(oldest_first: list[Attempt], messages: Messages) -> None:
    messages.check(stuck_text(oldest_first[::-1], needs_steps=False))


@pytest.mark.parametrize(
    "oldest_first",
    [
        [Attempt(40, 30)] * 2,
        [Attempt(40, 30), Attempt(40, 30), Attempt(41, 30)],
        [Attempt(40, 30), Attempt(40, 30), Attempt(40, 39)],
        [Attempt(40, 30), Attempt(38, 30), Attempt(35, 30), Attempt(31, 30)],
        [Attempt(40, 30), Attempt(38, 30), Attempt(36, 31), Attempt(31, 30), Attempt(39, 30)],
        [Attempt(40, 30), NOTHING, NOTHING],
    ],
)
def test_attempts_that_may_get_further(oldest_first: list[Attempt]) -> None:
    assert stuck_text(oldest_first[::-1], needs_steps=False) is None


def test_a_program_need_not_count_steps() -> None:
    assert stuck_text([NOTHING] * 9, needs_steps=True) is None
    assert stuck_text([Attempt(4, None)] * 3, needs_steps=True) is not None


def test_what_began_without_a_person() -> None:
    assert is_automatic({"restart_of": 3})
    assert is_automatic({"attempt": 2, "task": "x"})
    assert is_automatic({"command": ["roost", "up"]})
    assert not is_automatic({"attempt": 1, "command": ["roost", "continue", "x"]})


def test_the_newest_checkpoint_that_can_be_read(tmp_path: Path) -> None:
    assert attempt_progress.newest_saved_step(str(tmp_path)) is None
    for id, text in ((2, json.dumps({"step": 20})), (10, json.dumps({"step": 100})), (11, "torn")):
        folder = tmp_path / "Checkpoints" / f"state_{id}.ckpt"
        folder.mkdir(parents=True)
        (folder / "MANIFEST.json").write_text(text)
    (tmp_path / "Checkpoints" / "state_99.ckpt.corrupt").mkdir()
    assert attempt_progress.newest_saved_step(str(tmp_path)) == 100
