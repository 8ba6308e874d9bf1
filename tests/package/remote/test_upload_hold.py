"""Which checkpoints stay until they are uploaded, and within which space."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.config.sections.remote import RemoteSettings
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.remote import remote_status
from roost.package.remote.remote_status import RemoteStatus
from roost.package.remote.upload_hold import UploadHold, held_checkpoints
from roost.package.remote.upload_plan import KeepCount
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.progress import Progress


def manifests(*ids: int) -> list[Manifest]:
    files = {"x": {"bytes": 10**6}}
    return [Manifest(id=id, step=id, epoch=0, batch=0, line=[(0, id)], files=files) for id in ids]


@pytest.mark.parametrize(
    "keep, uploaded, held",
    [(2, [], [0, 1, 2]), (2, [1], [2]), (2, [4], []), ("all", [1, 4], [0, 2])],
)
def test_what_is_newer_than_the_copy_stays(keep: KeepCount, uploaded: list[int], held: list[int]) -> None:
    found = held_checkpoints(manifests(0, 1, 2, 3, 4), {3, 4}, uploaded=uploaded, keep=keep)
    assert [one.id for one in found] == held


def test_the_space_is_bounded_and_it_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hold = UploadHold(tmp_path, RemoteSettings(url="/x", hold_checkpoints=True, max_held_mb=2))
    assert hold(manifests(0, 1, 2, 3, 4), {4}) == {2, 3}
    assert hold(manifests(0, 1, 2, 3, 4), {4}) == {2, 3}
    assert capsys.readouterr().out.count("remote.max_held_mb") == 1


def test_the_retention_of_a_run_waits_for_the_copy(tmp_path: Path) -> None:
    """As a run saves: ten times, the copy has none; then it has the newest."""
    checkpoints = Checkpoints(tmp_path / "Checkpoints", asynchronous=False)
    checkpoints.hold = UploadHold(tmp_path, RemoteSettings(url="/x", hold_checkpoints=True))
    progress = Progress()
    for _ in range(5):
        checkpoints.save({}, progress)
    assert len(list((tmp_path / "Checkpoints").iterdir())) == 5
    remote_status.write(tmp_path, RemoteStatus(url="/x", state="idle", time=0.0, checkpoints=[4]))
    checkpoints.save({}, progress)
    left = sorted(path.name for path in (tmp_path / "Checkpoints").iterdir())
    assert left == ["state_4.ckpt", "state_5.ckpt"]
