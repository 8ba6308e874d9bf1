"""The checkpoint from which a run continues if some are damaged, or an older one was requested."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.base import durable
from roost.base.errors import CheckpointError, Damaged, NotFound
from roost.package.checkpoints import checkpoint, checkpoint_store
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.checkpoint_store import CheckpointStore
from tests.messages import Messages


def save(folder: Path, *parents: int | None) -> None:
    """Checkpoint n goes on from ``parents[n]``."""
    for id, parent in enumerate(parents):
        before = (
            checkpoint.read_manifest(checkpoint.checkpoint_folder(folder, parent))
            if parent is not None
            else None
        )
        line = checkpoint.lineage_after(before, id)
        checkpoint.write(
            folder, {"n": {"id": id}}, Manifest(id=id, step=id, epoch=0, batch=0, parent=parent, line=line)
        )


def damage(folder: Path, id: int, name: str = "n.json") -> None:
    path = checkpoint.checkpoint_folder(folder, id) / name
    path.write_bytes(b"?" + path.read_bytes()[1:])


def load(path: Path) -> Any:
    return checkpoint.read(path, to="numpy")[1]["n"]["id"]


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path).newest_good(load) == (None, [])
    assert CheckpointStore(tmp_path).lineage() == []


@pytest.mark.parametrize("name", ["n.json", "MANIFEST.json"])
def test_the_one_before_is_used_and_the_damaged_one_set_aside(
    tmp_path: Path, name: str, messages: Messages
) -> None:
    save(tmp_path, None, 0, 1, 2)
    damage(tmp_path, 3, name)
    damage(tmp_path, 2)
    found, said = CheckpointStore(tmp_path).newest_good(load)
    assert found == 1
    assert len(said) == 2 and not any("\n" in line for line in said)
    assert said[0].startswith("state_3.ckpt: ") and name in said[0]
    messages.check("\n".join(said))
    assert "state_3.ckpt.corrupt" in said[0]
    assert said[1].startswith("state_2.ckpt: ") and "n.json" in said[1]
    assert checkpoint.ids(tmp_path) == [0, 1]
    assert checkpoint.next_id(tmp_path) == 4
    assert CheckpointStore(tmp_path).newest_good(load) == (1, [])  # said once


def test_a_good_newest_one_leaves_the_others_unread(tmp_path: Path) -> None:
    save(tmp_path, None, 0)
    damage(tmp_path, 0)
    assert CheckpointStore(tmp_path).newest_good(load) == (1, [])
    assert checkpoint.ids(tmp_path) == [0, 1]


def test_all_damaged_is_an_error_that_names_each(tmp_path: Path, messages: Messages) -> None:
    save(tmp_path, None, 0, 1)
    for id, name in enumerate(["n.json", "MANIFEST.json", "n.json"]):
        damage(tmp_path, id, name)
    with pytest.raises(CheckpointError) as caught:
        CheckpointStore(tmp_path).newest_good(load)
    messages.check(caught.value.summary)
    for id in range(3):
        assert f"state_{id}.ckpt.corrupt" in str(caught.value)
        assert (tmp_path / f"state_{id}.ckpt.corrupt").is_dir()


def test_a_folder_or_file_without_a_manifest_is_set_aside_too(tmp_path: Path) -> None:
    save(tmp_path, None)
    (tmp_path / "state_1.ckpt").mkdir()
    (tmp_path / "state_2.ckpt").touch()
    found, said = CheckpointStore(tmp_path).newest_good(load)
    assert found == 0 and len(said) == 2


def test_a_branch_leaves_the_old_line_alone(tmp_path: Path) -> None:
    save(tmp_path, None, 0, 1, 2, 1)  # 4 goes on from 1: continue -c 1
    assert [info.id for info in CheckpointStore(tmp_path).lineage()] == [0, 1, 4]
    assert [info.id for info in CheckpointStore(tmp_path, tip=3).lineage()] == [0, 1, 2, 3]
    assert CheckpointStore(tmp_path, tip=1).newest_good(load) == (1, [])


def test_damage_on_a_branch_falls_back_along_the_branch(tmp_path: Path) -> None:
    save(tmp_path, None, 0, 1, 2, 1)
    damage(tmp_path, 4)  # its manifest is good, so its line is known: 0, 1, 4
    assert CheckpointStore(tmp_path).newest_good(load)[0] == 1


def test_what_is_newer_than_the_tip_is_neither_used_nor_touched(tmp_path: Path) -> None:
    save(tmp_path, None, 0, 1, 2)
    damage(tmp_path, 3, "MANIFEST.json")
    damage(tmp_path, 2, "MANIFEST.json")
    assert CheckpointStore(tmp_path, tip=1).newest_good(load) == (1, [])
    assert checkpoint.ids(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["n.json", "MANIFEST.json"])
def test_a_damaged_tip_falls_back_and_never_begins_anew(
    tmp_path: Path, name: str, messages: Messages
) -> None:
    save(tmp_path, None, 0, 1, 2)
    damage(tmp_path, 2, name)
    found, said = CheckpointStore(tmp_path, tip=2).newest_good(load)
    assert found == 1 and len(said) == 1
    damage(tmp_path, 1, name)
    damage(tmp_path, 0, name)
    with pytest.raises(CheckpointError) as refused:
        CheckpointStore(tmp_path, tip=1).newest_good(load)
    messages.check(refused.value.summary)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(errno.EIO, ""), OSError(errno.ESTALE, ""), OSError(errno.ETIMEDOUT, "")],
    ids=repr,
)
def test_an_error_of_the_loader_that_is_no_damage_sets_nothing_aside(
    tmp_path: Path, error: Exception
) -> None:
    save(tmp_path, None)

    def fails(path: Path) -> None:
        raise error

    with pytest.raises(type(error)):
        CheckpointStore(tmp_path).newest_good(fails)
    assert checkpoint.ids(tmp_path) == [0]


def test_a_newer_roost_s_checkpoint_is_not_passed_over(tmp_path: Path, messages: Messages) -> None:
    """An older roost must not throw away what a newer one has trained."""
    save(tmp_path, None, 0)
    file = checkpoint.checkpoint_folder(tmp_path, 1) / "MANIFEST.json"
    body = msgspec.json.decode(file.read_bytes())
    del body["sha256"]
    file.write_bytes(checkpoint._sealed({**body, "format": 2, "step": "of another type"}))
    with pytest.raises(CheckpointError) as caught:
        CheckpointStore(tmp_path).newest_good(load)
    messages.check(caught.value.summary)
    assert "state_1.ckpt" in str(caught.value)
    assert not isinstance(caught.value, Damaged)
    assert checkpoint.ids(tmp_path) == [0, 1]


@pytest.mark.parametrize(
    ("state", "facts"),
    [
        ({"$": "from the future"}, ["'from the future'"]),
        ({"$": "torch.dtype", "value": "float3"}, ["'float3'"]),
    ],
)
def test_a_state_for_a_newer_roost_or_torch_is_not_passed_over(
    tmp_path: Path, state: Any, facts: list[str], monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    save(tmp_path, None)
    with monkeypatch.context() as patch:
        patch.setattr("roost.base.state_tree.pack", lambda *_, **__: (state, {}))
        checkpoint.write(
            tmp_path, {"n": 0}, Manifest(id=1, step=1, epoch=0, batch=0, parent=0, line=[(0, 1)])
        )
    with pytest.raises(CheckpointError) as refused:
        CheckpointStore(tmp_path).newest_good(checkpoint.read)
    messages.check(refused.value.summary)
    assert all(fact in str(refused.value) for fact in ("state_1.ckpt", *facts))
    assert checkpoint.ids(tmp_path) == [0, 1]


def test_path_names_what_there_is(tmp_path: Path, messages: Messages) -> None:
    save(tmp_path, None, 0)
    assert CheckpointStore(tmp_path).path(1).name == "state_1.ckpt"
    with pytest.raises(NotFound) as refused:
        CheckpointStore(tmp_path).path(7)
    messages.check(refused.value.summary)
    assert "7" in refused.value.message and "0, 1" in refused.value.message


def test_when_all_were_set_aside_it_refuses_the_second_time_too(tmp_path: Path, messages: Messages) -> None:
    """A run that is asked again must not begin at step 0 as if nothing had been."""
    (tmp_path / "state_3.ckpt.corrupt").mkdir()
    with pytest.raises(CheckpointError) as refused:
        CheckpointStore(tmp_path).newest_good(checkpoint.verify)
    messages.check(refused.value.summary)
    assert "state_3.ckpt.corrupt" in str(refused.value)


def test_a_reader_changes_nothing(tmp_path: Path, messages: Messages) -> None:
    save(tmp_path, None, 0, 1, 2)
    damage(tmp_path, 3, "MANIFEST.json")
    damage(tmp_path, 2)
    before = sorted(path.name for path in tmp_path.iterdir())
    for _ in range(2):
        found, said = CheckpointStore(tmp_path).newest_readable(load)
        assert found == 1
        assert [line.partition(":")[0] for line in said] == ["state_3.ckpt", "state_2.ckpt"]
        messages.check("\n".join(said))
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert CheckpointStore(tmp_path, tip=0).newest_readable(load) == (0, [])


def test_no_good_checkpoint_is_an_error_for_readers_too(tmp_path: Path, messages: Messages) -> None:
    assert CheckpointStore(tmp_path).newest_readable(load) == (None, [])
    save(tmp_path, None)
    damage(tmp_path, 0)
    with pytest.raises(CheckpointError) as refused:
        CheckpointStore(tmp_path).newest_readable(load)
    messages.check(refused.value.summary)
    assert all(fact in str(refused.value) for fact in ("state_0.ckpt", "n.json"))
    checkpoint.set_aside(checkpoint.checkpoint_folder(tmp_path, 0))
    with pytest.raises(CheckpointError) as refused:
        CheckpointStore(tmp_path).newest_readable(load)
    messages.check(refused.value.summary)
    assert "state_0.ckpt.corrupt" in str(refused.value)


def test_what_its_run_removes_meanwhile_gives_way_to_the_newer_one(tmp_path: Path) -> None:
    """The run saves, and removes the one that is being read: at the first look, and between two files."""
    save(tmp_path, None, 0)

    def overtaken(path: Path) -> Any:
        if path.name == "state_1.ckpt":
            before = checkpoint.read_manifest(path)
            line = checkpoint.lineage_after(before, 2)
            checkpoint.write(tmp_path, {"n": {"id": 2}}, Manifest(id=2, step=2, epoch=0, batch=0, line=line))
            durable.remove_folder(path)
        return load(path)

    assert CheckpointStore(tmp_path).newest_readable(overtaken) == (2, [])


def test_a_checkpoint_by_its_step(tmp_path: Path, messages: Messages) -> None:
    save(tmp_path, None, 0, 1)
    made = CheckpointStore(tmp_path)
    assert made.at_step(1).id == 1
    again = Manifest(id=3, step=1, epoch=0, batch=0, parent=0, line=[(0, 0), (3, 3)])
    checkpoint.write(tmp_path, {"n": {"id": 3}}, again)
    assert made.at_step(1).id == 3, "that of the line"
    assert CheckpointStore(tmp_path, tip=2).at_step(1).id == 1
    assert made.at_step(2).id == 2, "of another line, where this one has none"
    damage(tmp_path, 2, "MANIFEST.json")
    with pytest.raises(NotFound) as refused:
        made.at_step(2)
    messages.check(refused.value.summary)
    assert "1, 0" in str(refused.value) and "state_2.ckpt" in str(refused.value)
    (tmp_path / "none").mkdir()
    with pytest.raises(NotFound) as refused:
        CheckpointStore(tmp_path / "none").at_step(0)
    messages.check(refused.value.summary)


def test_many_steps_are_not_all_named(tmp_path: Path, messages: Messages) -> None:
    found = [Manifest(id=id, step=id, epoch=0, batch=0) for id in range(30)]
    messages.check(checkpoint_store.format_steps(found))
    assert re.findall(r"\d+", checkpoint_store.format_steps(found)) == [*map(str, range(29, 9, -1)), "10"]


def test_the_manifests_are_not_read_again_for_each_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, None, *range(20))
    for id in range(1, 21):
        damage(tmp_path, id, "MANIFEST.json")
    reads: list[Path] = []
    read = checkpoint.read_manifests
    monkeypatch.setattr(checkpoint, "read_manifests", lambda folder: reads.append(folder) or read(folder))
    found, notes = CheckpointStore(tmp_path).newest_readable(load)
    assert (found, len(notes), len(reads)) == (0, 20, 1)
