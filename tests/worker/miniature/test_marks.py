"""The places between the hooks; the walk as a whole is in test_run.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.package.checkpoint import Info
from roost.train.hook import CallLists, Phase
from roost.train.hooks import Console, Records, Save, Validate
from roost.worker.miniature.marks import Mark, Notices, lost, size_of
from roost.worker.miniature.walk import Walk
from tests.project.projects import RUNNER, project
from tests.worker.miniature.test_run import walked


def test_marks_stand_at_the_borders_of_phases(tmp_path: Path) -> None:
    notices = Notices(Walk(tmp_path), steps=2, place=tmp_path)
    given = [Records(tmp_path / "records"), Save(), Console(), Validate()]
    order = [hook.name for hook in CallLists(notices.hooks(given)).hooks]
    assert order == [
        *("check 0", "check 1", "Validate", "check 2", "check 3", "Records", "check 4", "Save", "check 5"),
    ]
    assert CallLists([Mark(7, Phase.SAVE)]).hooks[0].name == "check 7"


def test_too_little_room_for_what_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is found out before anything is written. The buffer is huge, and has one number in memory."""
    runner = RUNNER.replace(
        "width = ", "self.register_buffer('huge', torch.zeros(1).expand(10**16))\n        width = "
    )
    found, said = walked(project(tmp_path, runner=f"import torch\n{runner}"), monkeypatch, Refused)
    assert found.last == "save" and said.startswith("the check saves 1.2e+08 GB, and the disk of")
    assert "TMPDIR=/path roost check" in said


def test_words() -> None:
    info = Info(id=1, step=1, epoch=0, batch=0, files={"a": {"bytes": 3}, "b": {"bytes": 4}})
    assert size_of(info) == 7
    assert lost(["a", "b", "c", "d"]) == "a, b, c and 1 more"
