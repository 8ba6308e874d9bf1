"""The places between the hooks; the check as a whole is in test_run.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from roost.base.errors import Refused
from roost.train.hook import CallLists, Phase
from roost.train.hooks import Console, Records, Save, Validate
from roost.worker.check.short_run import CallbackHook
from roost.worker.check.stage_hooks import StageHooks, _num_bytes, describe_value
from roost.worker.check.stages import StageReporter
from tests.project.projects import RUNNER, project
from tests.worker.check.test_check_run import walked


def test_marks_stand_at_the_borders_of_phases(tmp_path: Path) -> None:
    stage_hooks = StageHooks(StageReporter(tmp_path), steps=2, place=tmp_path)
    given = [Records(tmp_path / "records"), Save(), Console(), Validate()]
    order = ", ".join(hook.name for hook in CallLists(stage_hooks.hooks(given)).hooks)
    assert order == "check 0, check 1, Validate, check 2, check 3, Records, check 4, Save, check 5"
    assert CallLists([CallbackHook(7, Phase.SAVE)]).hooks[0].name == "check 7"


def test_too_little_room_for_what_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is found out before anything is written. The buffer is huge, and has one number in memory."""
    runner = RUNNER.replace(
        "width = ", "self.register_buffer('huge', torch.zeros(1).expand(10**16))\n        width = "
    )
    found, said = walked(project(tmp_path, runner=f"import torch\n{runner}"), monkeypatch, Refused)
    assert found.last == "save" and "1.2e+08 GB" in said
    assert "TMPDIR=/path roost check" in said


def test_bytes_of_a_nest() -> None:
    nest = {"a": torch.zeros(3), "b": [torch.zeros(2, dtype=torch.float64), (torch.zeros(1), "x")], "c": 4}
    assert _num_bytes(nest) == 12 + 16 + 4


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.zeros(2, 3, dtype=torch.int64), "int64 (2, 3)"),
        ([torch.zeros(2), {"a": torch.zeros(())}], "float32 (2,), a: float32 ()"),
        (np.zeros((2, 2)), "ndarray (2, 2)"),
        (["a", "b"], "2 str"),
        ((), "nothing"),
        (object(), "object"),
        ([torch.zeros(1)] * 99, None),
    ],
)
def test_what_a_batch_looks_like(value: object, text: str | None) -> None:
    found = describe_value(value)
    assert found == text if text is not None else len(found) == 122 and found.endswith(" …")
