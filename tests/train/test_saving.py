"""Saving now, and when the disk does not want to; that a save is exact is proven in test_trainer."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from roost.base import durable
from roost.base.errors import TrainingError
from roost.package import checkpoint
from roost.train import saving
from roost.train.checkpoints import Checkpoints
from roost.train.hooks import Save
from tests.train.parts import MLP, Still, built, plain


def full_disk(operation: str, path: str) -> None:
    if operation == "write" and "Checkpoints" in path:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_without_checkpoints_nothing_is_saved() -> None:
    assert saving.save(plain(built(MLP), Still(), until=3), "requested") is False


def test_a_full_disk_is_said_and_forgets_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "Checkpoints"
    trainer = plain(built(MLP), Still(), [Save("100")], until=3, checkpoints=Checkpoints(place))
    trainer.request_save(hold=True)
    monkeypatch.setattr(durable, "fault", full_disk)
    assert saving.save(trainer, "held") is False
    assert "checkpoint not written: [Errno 28]" in capsys.readouterr().out
    assert not trainer.requested("hold"), "a later save is not held in its place"
    trainer.request_stop("test")
    with pytest.raises(TrainingError, match=r"the last checkpoint could not be written.*make space"):
        saving.save(trainer, "signal")
    monkeypatch.setattr(durable, "fault", None)
    assert saving.save(trainer, "signal") is True
    assert [(info.reason, info.held) for info in checkpoint.infos(place)] == [("signal", False)]
