"""A remote copy in a folder: what goes up, what is found after a cut, and what comes back bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from roost.base import durable
from roost.base.errors import NotFound, Refused
from roost.config.values.store_url import parse_url
from roost.package.package import PackageFolder
from roost.package.remote import copy_index, local_files, ownership, restore
from roost.package.remote.copy_index import BrokenIndex, CopyIndex
from roost.package.remote.ownership import OwnedElsewhere
from roost.package.remote.remote_copy import copies_below
from roost.package.remote.store import ObjectMissing, StoreError
from roost.package.remote.upload import CopyTaken, Uploader, UploadOptions
from tests.messages import Messages
from tests.package.remote.packages import contents, copy_of, make, save, uploader


@pytest.fixture
def package(tmp_path: Path) -> PackageFolder:
    made = make(tmp_path / "runs")
    save(made, 0)
    save(made, 1)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def index_of(store: Path, name: str = "A") -> CopyIndex:
    return copy_of(store, name).require_index()


def object_names(store: Path, name: str = "A") -> set[str]:
    return {path.name for path in (store / name / "objects").iterdir()}


def test_a_package_comes_back_bit_for_bit_under_its_name(
    package: PackageFolder, store: Path, tmp_path: Path
) -> None:
    (package.path / "run.sh").write_text("#!/bin/sh\n")
    (package.path / "run.sh").chmod(0o755)
    (package.path / "data").symlink_to("/somewhere/data")
    (package.path / "empty" / "inner").mkdir(parents=True)
    os.utime(package.path / "run.sh", (1000.0, 1000.25))
    result = uploader(package, store).upload(is_live=False)
    assert result.index.step == 10
    assert result.is_proven
    back = restore.restore(copy_of(store), tmp_path / "elsewhere")
    assert back.path == tmp_path / "elsewhere" / "A"
    assert contents(back.path) == contents(package.path)
    assert (back.path / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (back.path / "run.sh").stat().st_mtime == 1000.25
    again = restore.restore(copy_of(store), tmp_path / "elsewhere")
    assert again.was_there
    assert again.got_bytes == 0


def test_only_what_is_new_is_put(package: PackageFolder, store: Path) -> None:
    uploading = uploader(package, store)
    uploading.upload(is_live=True)
    assert uploading.upload(is_live=True).put_bytes == 0
    assert index_of(store).number == 1  # nothing new: no new index
    save(package, 2)
    put = uploading.upload(is_live=True)
    folder = package.checkpoints / "state_2.ckpt"
    records = (package.path / "records" / "1.jsonl").stat().st_size
    assert put.put_bytes <= sum(path.stat().st_size for path in folder.iterdir()) + records
    assert index_of(store).step == 20
    assert uploader(package, store).upload(is_live=True).put_bytes == 0  # another process, later


def test_the_copy_keeps_the_newest_checkpoints_and_the_best(tmp_path: Path, store: Path) -> None:
    best = {"monitor": "valid/loss", "mode": "min"}
    package = make(tmp_path / "runs", checkpoint={"best": [best]})
    uploading = uploader(package, store)
    for id, loss in enumerate([0.9, 0.1, 0.5, 0.6, 0.7]):
        save(package, id, metrics={"valid/loss": loss})
        uploading.upload(is_live=True)
    assert [one.id for one in index_of(store).checkpoints] == [1, 3, 4]
    needed = {name for index in copy_of(store).kept_indexes() for name in index.objects()}
    assert object_names(store) == needed  # all others are removed


def test_of_several_new_checkpoints_the_newest_one_is_put_first(package: PackageFolder, store: Path) -> None:
    uploading = uploader(package, store)

    def upload(*, is_live: bool = True) -> tuple[list[int], bool]:
        result = uploading.upload(is_live=is_live, newest_first=True)
        assert result.index == index_of(store)
        return [one.id for one in result.index.checkpoints], result.is_complete

    assert upload() == ([1], False)
    assert upload() == ([0, 1], True)
    save(package, 2)
    save(package, 3)
    assert upload() == ([1, 3], False)  # the one before the newest is still that of the last upload
    save(package, 4)
    assert upload() == ([2, 3], True)  # else a slow store would never have those that are not the newest
    assert upload() == ([3, 4], True)
    save(package, 5)
    save(package, 6)
    assert upload() == ([4, 6], False)
    save(package, 7)
    assert upload(is_live=False) == ([6, 7], True)  # the session has ended: its last save is the first


def test_a_checkpoint_that_the_run_has_removed_stays_until_a_newer_one_is_up(
    package: PackageFolder, store: Path
) -> None:
    uploading = uploader(package, store, UploadOptions(keep=1))
    uploading.upload(is_live=True)
    shutil.rmtree(package.checkpoints / "state_1.ckpt")
    shutil.rmtree(package.checkpoints / "state_0.ckpt")
    assert uploading.upload(is_live=True).index.step == 10
    save(package, 2)
    assert [one.id for one in uploading.upload(is_live=True).index.checkpoints] == [2]


def test_keep_all_removes_none(package: PackageFolder, store: Path) -> None:
    uploading = uploader(package, store, UploadOptions(keep="all"))
    uploading.upload(is_live=True)
    shutil.rmtree(package.checkpoints / "state_0.ckpt")
    for id in (2, 3):
        save(package, id)
    assert [one.id for one in uploading.upload(is_live=True).index.checkpoints] == [0, 1, 2, 3]


def test_a_growing_file_is_copied_to_its_last_whole_line(package: PackageFolder, store: Path) -> None:
    records = package.path / "records" / "1.jsonl"
    whole = records.read_bytes()
    uploading = uploader(package, store)
    with records.open("ab") as file:
        file.write(b'{"step":11,"tra')
        file.flush()
        found = uploading.upload(is_live=True).index.files["records/1.jsonl"]
        assert found.size == len(whole)
        ended = uploading.upload(is_live=False).index.files["records/1.jsonl"]
        assert ended.size == records.stat().st_size  # of a session that has ended, with its torn end
    uploading = uploader(package, store)
    with records.open("ab") as file:
        assert uploading.upload(is_live=True).index.files["records/1.jsonl"].size == len(whole)
    closed = uploading.upload(is_live=True).index.files["records/1.jsonl"]
    assert closed.size == records.stat().st_size  # by its writer, without another byte


def test_a_table_of_the_project_without_a_last_line_end_is_copied_whole(
    package: PackageFolder, store: Path
) -> None:
    (package.path / "labels.csv").write_bytes(b"name,label\na,1\nb,2")
    found = uploader(package, store).upload(is_live=True).index.files["labels.csv"]
    assert found.sha256 == hashlib.sha256(b"name,label\na,1\nb,2").hexdigest()


def test_of_a_long_output_only_the_last_piece_is_put_again(
    package: PackageFolder, store: Path, tmp_path: Path
) -> None:
    line = b"x" * 99 + b"\n"
    with package.output.open("ab") as file:
        file.write(line * 30_000)
    uploading = uploader(package, store)
    uploading.upload(is_live=True)
    with package.output.open("ab") as file:
        file.write(line * 20_000)
    assert uploading.upload(is_live=True).put_bytes < 2_000_000 + 2 * local_files.GROWING_PIECE_BYTES
    restore.restore(copy_of(store), tmp_path / "back")
    assert (tmp_path / "back" / "A" / "_output.txt").read_bytes() == package.output.read_bytes()


def test_a_file_that_a_program_is_writing_is_left_as_it_was(package: PackageFolder, store: Path) -> None:
    weights = package.path / "weights.pt"
    weights.write_bytes(b"the first")
    uploading = uploader(package, store)
    before = uploading.upload(is_live=True).index.files["weights.pt"]
    with weights.open("wb") as file:
        file.write(b"a hal")
        file.flush()
        found = uploading.upload(is_live=True)
        assert found.left_out == ["weights.pt"]
        assert found.index.files["weights.pt"] == before
        file.write(b"f")
    assert uploading.upload(is_live=True).index.files["weights.pt"].size == 6


def test_unfinished_writes_and_damaged_checkpoints_are_not_copied(
    package: PackageFolder, store: Path
) -> None:
    (package.checkpoints / ".state_2.ckpt.tmp-0123456789ab").mkdir()
    (package.checkpoints / ".state_2.ckpt.tmp-0123456789ab" / "model.json").write_text("{")
    (package.checkpoints / "state_1.ckpt").rename(package.checkpoints / "state_1.ckpt.corrupt")
    damaged = package.checkpoints / "state_0.ckpt" / "model.json"
    damaged.write_bytes(damaged.read_bytes()[::-1])
    found = uploader(package, store).upload(is_live=True).index
    assert not [name for name in found.files if name.startswith("Checkpoints")]
    assert found.step is None


def test_a_torn_index_is_passed_over_and_a_flipped_object_is_found(
    package: PackageFolder, store: Path, tmp_path: Path, messages: Messages
) -> None:
    uploading = uploader(package, store)
    uploading.upload(is_live=True)
    save(package, 2)
    uploading.upload(is_live=True)
    newest = store / "A" / "index-2.json"
    newest.write_bytes(newest.read_bytes()[:-20])
    assert index_of(store).step == 10
    victim = index_of(store).files["Checkpoints/state_1.ckpt/model.json"].pieces[0]
    path = store / "A" / "objects" / victim
    path.write_bytes(b"?" + path.read_bytes()[1:])
    with pytest.raises(StoreError) as error:
        restore.restore(copy_of(store), tmp_path / "back")
    messages.check(error.value)
    path.unlink()
    with pytest.raises(ObjectMissing) as missing:
        restore.restore(copy_of(store), tmp_path / "back")
    assert missing.value.fix == error.value.fix
    assert not (tmp_path / "back" / "A").exists()
    (store / "A" / "index-1.json").write_bytes(b"{}")
    with pytest.raises(BrokenIndex) as broken:
        index_of(store)
    messages.check(broken.value)


def test_an_upload_that_was_cut_puts_only_what_is_missing(package: PackageFolder, store: Path) -> None:
    """Killed after its objects and before its index; one object is only half there."""
    whole = uploader(package, store).upload(is_live=True).put_bytes
    (store / "A" / "index-1.json").unlink()
    victim = max((store / "A" / "objects").iterdir(), key=lambda path: path.stat().st_size)
    size = victim.stat().st_size
    victim.write_bytes(victim.read_bytes()[: size // 2])
    uploading = uploader(package, store)
    puts: list[str] = []
    put_object = uploading._copy.put_object
    uploading._copy.put_object = lambda name, data: (puts.append(name), put_object(name, data))  # type: ignore[method-assign, func-returns-value, assignment, return-value]
    assert uploading.upload(is_live=True).put_bytes == whole
    assert puts == [victim.name]
    assert victim.stat().st_size == size


def test_a_cut_restore_continues(package: PackageFolder, store: Path, tmp_path: Path) -> None:
    (package.path / "big.bin").write_bytes(os.urandom(3_000_000))
    options = UploadOptions(max_mb_per_second=0.5)  # pieces of 1 MB
    uploading = uploader(package, store, options)
    uploading._rate._bytes_per_second = None
    uploading.upload(is_live=False)
    copy, fetched = copy_of(store), list[str]()
    get, big = copy.get_object, index_of(store).files["big.bin"]
    assert len(big.pieces) == 3

    def failing(name: str, size: int) -> bytes:
        if name == big.pieces[2]:
            raise StoreError("the line is cut")
        return get(name, size)

    copy.get_object = failing  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        restore.restore(copy, tmp_path / "back")
    part = next((tmp_path / "back").glob(".A.tmp-*/big.bin.part-of-pull"))
    with part.open("ab") as file:
        file.write(b"a torn piece")
    copy.get_object = lambda name, size: (fetched.append(name), get(name, size))[1]  # type: ignore[method-assign, func-returns-value]
    restore.restore(copy, tmp_path / "back")
    assert big.pieces[2] in fetched
    assert not {*big.pieces[:2]} & {*fetched}
    assert contents(tmp_path / "back" / "A") == contents(package.path)


def test_nothing_is_overwritten(
    package: PackageFolder, store: Path, tmp_path: Path, messages: Messages
) -> None:
    uploader(package, store).upload(is_live=False)
    save(package, 2)
    with pytest.raises(Refused) as error:
        restore.restore(copy_of(store), package.path.parent)
    messages.check(error.value)
    other = make(tmp_path / "other")
    with pytest.raises(Refused) as error:
        restore.restore(copy_of(store), other.path.parent)
    messages.check(error.value)
    with pytest.raises(Refused) as error:
        uploader(other, store).upload(is_live=False)
    messages.check(error.value)
    with pytest.raises(NotFound) as missing:
        restore.restore(copy_of(store, "B"), tmp_path)
    messages.check(missing.value)


def as_other_machine(store: Path, **fields: object) -> None:
    """Rewrites the newest index as one that another machine has just written."""
    index = index_of(store)
    owner = msgspec.structs.replace(index.owner, host="colab-7", boot_id="other")
    changed = msgspec.structs.replace(index, number=index.number + 1, owner=owner, **fields)
    (store / "A" / copy_index.index_name(changed.number)).write_bytes(copy_index.encode(changed))


def test_a_copy_that_another_machine_writes_is_left_to_it(
    package: PackageFolder, store: Path, messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploading = uploader(package, store)
    uploading.upload(is_live=True)
    as_other_machine(store)
    save(package, 2)
    with pytest.raises(CopyTaken) as taken:
        uploading.upload(is_live=True)
    messages.check(taken.value)
    with pytest.raises(OwnedElsewhere) as owned:
        uploader(package, store).upload(is_live=True)
    messages.check(owned.value)
    index = index_of(store)
    late = index.owner.time + ownership.FRESH_SECONDS + 1
    with monkeypatch.context() as patch:
        patch.setattr(ownership.time, "time", lambda: late)
        ownership.require_writable(package.path, index, url="x")
    ownership.require_writable(package.path, msgspec.structs.replace(index, ended=True), url="x")
    ownership.require_writable(package.path, index, url="x", steal=True)
    assert index_of(store).owner.host == "colab-7"


def continued_elsewhere(package: PackageFolder, store: Path, folder: Path) -> PackageFolder:
    """The package that another machine has pulled, with a second session there."""
    uploader(package, store).upload(is_live=False)
    restore.restore(copy_of(store), folder / "there")
    there = PackageFolder.open(folder / "there" / "A")
    there.new_session({"kind": "train", "token": "other"})
    (there.path / "records" / "2.jsonl").write_bytes(b'{"session":2,"start_step":10}\n')
    return there


def test_a_copy_with_a_session_that_the_package_lacks_is_not_replaced(
    package: PackageFolder, store: Path, tmp_path: Path, messages: Messages
) -> None:
    there = continued_elsewhere(package, store, tmp_path)
    uploader(there, store).upload(is_live=False)
    package.new_session({"kind": "train", "token": "own"})
    with pytest.raises(OwnedElsewhere) as error:
        uploader(package, store).upload(is_live=False)
    messages.check(error.value)


def test_a_copy_with_a_session_of_a_program_that_the_package_lacks_is_not_replaced(
    store: Path, tmp_path: Path
) -> None:
    """A program has no records: its session has begun when it has a record of its state."""
    request = {"kind": "command", "command": ["true"]}
    package = PackageFolder.create(tmp_path / "runs", name="A", values={}, request=request)
    shutil.copytree(package.path, tmp_path / "there" / "A")
    there = PackageFolder.open(tmp_path / "there" / "A")
    there.new_session({"kind": "command", "token": "other"})
    package.new_session({"kind": "command", "token": "own"})
    uploader(there, store).upload(is_live=False)
    assert ownership.foreign_sessions(package.path, index_of(store)) == []
    (there.path / "sessions" / "1.json").write_bytes(b"{}")
    uploader(there, store).upload(is_live=False)
    with pytest.raises(OwnedElsewhere, match="session 1"):
        uploader(package, store).upload(is_live=False)


def test_a_copy_that_another_run_has_begun_meanwhile_is_left_to_it(
    package: PackageFolder, store: Path, tmp_path: Path
) -> None:
    other, uploading = make(tmp_path / "there"), uploader(package, store)
    uploading.connect()  # both find no copy
    uploader(other, store).upload(is_live=True)
    with pytest.raises(Refused, match="copy of another run"):
        uploading.upload(is_live=True)


def test_a_package_that_was_copied_on_this_machine_takes_the_copy_over_only_once(
    package: PackageFolder, store: Path, tmp_path: Path, messages: Messages
) -> None:
    shutil.copytree(package.path, tmp_path / "there" / "A")
    uploading = uploader(package, store)
    uploading.upload(is_live=True)
    there = PackageFolder.open(tmp_path / "there" / "A")
    save(there, 2)
    uploader(there, store).upload(is_live=True)
    with pytest.raises(CopyTaken) as taken:
        uploading.upload(is_live=True)
    messages.check(re.sub(r"user \w+", "user ann", str(taken.value)))


def test_a_copy_that_is_taken_has_nothing_of_the_sessions_that_the_package_lacks(
    package: PackageFolder, store: Path, tmp_path: Path
) -> None:
    there = continued_elsewhere(package, store, tmp_path)
    for id in (2, 3):
        save(there, id, session=2)
    options = UploadOptions(keep="all")
    assert uploader(there, store, options).upload(is_live=False).index.step == 30
    shutil.rmtree(package.checkpoints / "state_0.ckpt")  # only the copy has it, and it is of both
    taken = Uploader(package, copy_of(store), options, steal=True).upload(is_live=False)
    assert (taken.index.step, [one.id for one in taken.index.checkpoints]) == (10, [0, 1])
    restore.restore(copy_of(store), tmp_path / "back")
    assert contents(package.path).items() <= contents(tmp_path / "back" / "A").items()
    assert not (tmp_path / "back" / "A" / "records" / "2.jsonl").exists()


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/etc/x", "a//b", "link/x", "request.json/x"])
def test_an_index_cannot_write_outside_of_the_package(package: PackageFolder, store: Path, name: str) -> None:
    uploader(package, store).upload(is_live=False)
    index = index_of(store)
    file = index.files["request.json"]
    changed = msgspec.structs.replace(index, files={**index.files, name: file}, links={"link": "/tmp"})
    with pytest.raises(BrokenIndex):
        copy_index.decode(copy_index.encode(changed))


@pytest.mark.parametrize("target", ["", "a\0b"])
def test_an_index_with_a_link_that_no_system_can_make_is_broken(
    package: PackageFolder, store: Path, target: str
) -> None:
    uploader(package, store).upload(is_live=False)
    changed = msgspec.structs.replace(index_of(store), links={"link": target})
    with pytest.raises(BrokenIndex, match="its link 'link' cannot be made"):
        copy_index.decode(copy_index.encode(changed))


@pytest.mark.parametrize("store", [".", "..", "inside"])
def test_a_copy_inside_of_its_own_package_is_refused(
    package: PackageFolder, store: str, messages: Messages
) -> None:
    before = contents(package.path)
    with pytest.raises(Refused) as error:
        uploader(package, (package.path / store).resolve()).upload(is_live=False)
    messages.check(error.value)
    assert contents(package.path) == before


def put_changed(store: Path, **fields: object) -> None:
    """Writes the newest index again, as another program might."""
    index = msgspec.structs.replace(index_of(store), **fields)
    (store / "A" / copy_index.index_name(index.number)).write_bytes(copy_index.encode(index))


def test_the_run_of_an_index_cannot_lead_to_another_folder(
    package: PackageFolder, store: Path, tmp_path: Path
) -> None:
    uploader(package, store).upload(is_live=False)
    (tmp_path / "home" / "docs").mkdir(parents=True)
    (tmp_path / "home" / "docs" / "mine").touch()
    (tmp_path / "home" / "runs" / ".A.tmp-").mkdir(parents=True)
    put_changed(store, run="/../../docs")
    with pytest.raises(BrokenIndex, match="of which run"):
        restore.restore(copy_of(store), tmp_path / "home" / "runs")
    assert (tmp_path / "home" / "docs" / "mine").exists()


def test_a_link_of_a_cut_restore_is_never_written_through(
    package: PackageFolder, store: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    data = package.path / "data.bin"
    data.write_bytes(b"0123456789" * 200)
    uploading = uploader(package, store)
    uploading._reader = local_files.FileReader(package.path, piece_bytes=1000)
    uploading.upload(is_live=False)
    index = index_of(store)
    files = {name: file for name, file in index.files.items() if name != "data.bin"}
    put_changed(
        store, files=files, links={"data.bin.part-of-pull": str(mine), "x" * 300: "it cuts this restore"}
    )
    with pytest.raises(OSError, match="too long"):
        restore.restore(copy_of(store), tmp_path / "back")
    (store / "A" / copy_index.index_name(index.number)).write_bytes(copy_index.encode(index))
    back = restore.restore(copy_of(store), tmp_path / "back")
    assert mine.read_text() == "mine"
    assert contents(back.path) == contents(package.path)


def test_only_objects_are_deleted_and_none_behind_a_link(
    package: PackageFolder, store: Path, tmp_path: Path
) -> None:
    uploader(package, store).upload(is_live=False)
    objects = store / "A" / "objects"
    (objects / "thesis.txt").touch()
    save(package, 2)
    uploader(package, store).upload(is_live=False)
    assert (objects / "thesis.txt").exists()
    objects.rename(tmp_path / "mine")
    objects.symlink_to(tmp_path / "mine")
    there = sorted((tmp_path / "mine").iterdir())
    save(package, 3)
    with pytest.raises(StoreError, match="is a link"):
        uploader(package, store).upload(is_live=False)
    assert sorted((tmp_path / "mine").iterdir()) == there


def test_an_old_index_under_a_newer_name_is_not_taken(package: PackageFolder, store: Path) -> None:
    uploading = uploader(package, store)
    uploading.upload(is_live=False)
    old = (store / "A" / "index-1.json").read_bytes()
    save(package, 2)
    uploading.upload(is_live=False)
    (store / "A" / "index-3.json").write_bytes(old)
    assert index_of(store).step == 20


def test_an_index_that_is_deleted_while_the_store_is_listed_hides_no_other(
    package: PackageFolder, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploading = uploader(package, store)
    uploading.upload(is_live=True)
    save(package, 2)
    uploading.upload(is_live=True)

    def delete_old(name: str, is_staging: Callable[[str], bool] = durable.is_staging) -> bool:
        (store / "A" / "index-1.json").unlink(missing_ok=True)
        return is_staging(name)

    monkeypatch.setattr(durable, "is_staging", delete_old)  # called between the name and the size of each
    assert copy_of(store).index_numbers() == [2]


def test_no_index_is_written_that_no_reader_would_find(package: PackageFolder, store: Path) -> None:
    uploader(package, store).upload(is_live=False)
    (store / "A" / "index-999999999999999999.json").touch()
    save(package, 2)
    with pytest.raises(BrokenIndex, match="the largest number"):
        uploader(package, store).upload(is_live=False)


def test_a_file_of_a_store_cannot_fill_the_memory(package: PackageFolder, store: Path) -> None:
    uploader(package, store).upload(is_live=False)
    os.truncate(store / "A" / "index-1.json", 2**40)
    with pytest.raises(StoreError, match="more than"):
        index_of(store)


def test_a_time_that_no_file_can_have_does_not_stop_a_restore(
    package: PackageFolder, store: Path, tmp_path: Path
) -> None:
    uploader(package, store).upload(is_live=False)
    files = index_of(store).files
    changed = msgspec.structs.replace(files["request.json"], mtime=1e300)
    put_changed(store, files={**files, "request.json": changed})
    back = restore.restore(copy_of(store), tmp_path / "back")
    assert contents(back.path) == contents(package.path)


def test_the_fix_for_wrong_bytes_mends_the_copy(package: PackageFolder, store: Path, tmp_path: Path) -> None:
    uploader(package, store).upload(is_live=False)
    wrong = store / "A" / "objects" / index_of(store).files["request.json"].pieces[0]
    wrong.write_bytes(bytes(wrong.stat().st_size))
    with pytest.raises(StoreError) as error:
        restore.restore(copy_of(store), tmp_path / "back")
    assert f"objects/{wrong.name}" in str(error.value) and "roost push" in str(error.value)
    uploading = uploader(package, store)
    assert uploading.check().bad == {"request.json": "damaged"}
    uploading.upload(is_live=False)
    assert contents(restore.restore(copy_of(store), tmp_path / "back").path) == contents(package.path)


def test_all_bytes_of_a_copy_are_read_again(package: PackageFolder, store: Path, tmp_path: Path) -> None:
    """Lost, cut, of the same size, and the newest index; one checkpoint only the copy had."""
    uploader(package, store).upload(is_live=False)
    shutil.rmtree(package.checkpoints / "state_1.ckpt")
    uploader(package, store).upload(is_live=False)
    index = index_of(store)
    files, objects = index.files, store / "A" / "objects"
    seen = list[tuple[int, int]]()
    checked = uploader(package, store).check(note=seen.append)
    assert checked.bad == {} and checked.num_bytes == sum(index.objects().values())
    assert seen[0] == (0, checked.num_bytes) and seen[-1] == (checked.num_bytes, checked.num_bytes)
    (objects / files["args.json"].pieces[0]).unlink()
    cut = objects / files["request.json"].pieces[0]
    cut.write_bytes(cut.read_bytes()[:-1])
    gone = "Checkpoints/state_1.ckpt/model.json"
    flipped = objects / files[gone].pieces[0]
    flipped.write_bytes(bytes(flipped.stat().st_size))
    uploading = uploader(package, store)
    assert uploading.check().bad == {"args.json": "lost", "request.json": "damaged", gone: "damaged"}
    made = uploading.upload(is_live=False).index
    assert made.step == 0 and gone not in made.files
    again = uploader(package, store)
    assert again.check().bad == {}
    (store / "A" / f"index-{made.number}.json").write_bytes(b"{}")
    again = uploader(package, store)
    assert f"index-{made.number}.json" in again.check().bad
    assert again.upload(is_live=False).index.number == made.number + 1
    assert contents(restore.restore(copy_of(store), tmp_path / "back").path) == contents(package.path)


@pytest.mark.parametrize("lost", ["", "objects"])
def test_what_the_store_has_lost_is_put_again(
    package: PackageFolder, store: Path, tmp_path: Path, lost: str
) -> None:
    uploading = uploader(package, store)
    uploading.upload(is_live=True)
    shutil.rmtree(store / "A" / lost)
    assert uploading.upload(is_live=True).index.step == 10
    back = restore.restore(copy_of(store), tmp_path / "back")
    assert contents(back.path) == contents(package.path)


def test_a_checkpoint_that_both_have_lost_is_not_called_durable(
    package: PackageFolder, store: Path, tmp_path: Path
) -> None:
    uploading = uploader(package, store)
    uploading.upload(is_live=True)
    newest = index_of(store).files["Checkpoints/state_1.ckpt/model.json"].pieces[0]
    shutil.rmtree(package.checkpoints / "state_1.ckpt")
    assert uploading.upload(is_live=True).index.step == 10  # the copy has it still
    (store / "A" / "objects" / newest).unlink()
    assert uploading.upload(is_live=True).index.step == 0
    assert uploader(package, store).upload(is_live=True).index.step == 0
    assert contents(restore.restore(copy_of(store), tmp_path / "back").path) == contents(package.path)


def test_a_table_that_is_written_again_is_not_mixed_with_the_former_one(
    package: PackageFolder, store: Path, tmp_path: Path
) -> None:
    table = package.path / "table.csv"
    table.write_bytes(b"a" * 2**20 + b"\n")
    uploading = uploader(package, store)
    uploading.upload(is_live=True)
    with table.open("r+b") as file:  # the same file
        file.write(b"b" * (2**20 + 100) + b"\n")
    uploading.upload(is_live=True)
    back = restore.restore(copy_of(store), tmp_path / "back")
    assert (back.path / "table.csv").read_bytes() == table.read_bytes()


def test_copies_are_listed(package: PackageFolder, store: Path, tmp_path: Path) -> None:
    assert copies_below(parse_url(str(store))) == []
    uploader(package, store).upload(is_live=False)
    uploader(make(tmp_path / "runs", "B"), store).upload(is_live=False)
    (store / "C").mkdir()
    found = dict(copies_below(parse_url(str(store))))
    assert list(found) == ["A", "B"]
    assert {one.owner.host for one in found.values() if isinstance(one, CopyIndex)} == {socket.gethostname()}


def test_an_index_holds_no_secret_of_the_environment(
    package: PackageFolder, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-key")
    uploader(package, store).upload(is_live=False)
    for path in (store / "A").glob("index-*"):
        assert b"very-secret-key" not in path.read_bytes()
        assert json.loads(path.read_bytes().splitlines()[0])["name"] == "A"


def test_a_store_at_a_file_is_refused_with_a_fix(package: PackageFolder) -> None:
    with pytest.raises(StoreError, match="name a folder"):
        uploader(package, Path("/dev/null")).upload(is_live=False)


def test_the_empty_folder_of_an_unmounted_drive_is_not_taken_for_the_store(
    package: PackageFolder, store: Path, tmp_path: Path, messages: Messages
) -> None:
    uploading = uploader(package, store)
    store_id = uploading.upload(is_live=True).store_id
    save(package, 2)
    drive = store.rename(tmp_path / "drive")
    for makes_folder in (False, True):
        if makes_folder:
            store.mkdir()
        for process in (uploading, uploader(package, store, store_id=store_id)):
            with pytest.raises(StoreError) as error:
                process.upload(is_live=True)
            messages.check(error.value)
        assert not store.exists() or not list(store.iterdir())
    other = make(tmp_path / "runs", "B")
    uploader(other, store).upload(is_live=True)  # a first upload cannot know better
    with pytest.raises(StoreError) as error:
        uploading.upload(is_live=True)
    messages.check(error.value)
    shutil.rmtree(store)
    drive.rename(store)
    assert uploading.upload(is_live=True).index.step == 20
    shutil.rmtree(store / "A")  # what is removed from the right store is put again
    assert uploader(package, store, store_id=store_id).upload(is_live=True).index.step == 20
    shutil.rmtree(store)
    store.mkdir()
    (store / ".roost-store").touch()  # the fix
    assert uploading.upload(is_live=True).store_id == store_id


def test_a_drive_that_is_unmounted_during_an_upload_is_noticed(
    package: PackageFolder, store: Path, tmp_path: Path
) -> None:
    uploading = uploader(package, store)
    uploading.upload(is_live=True)
    save(package, 2)
    put_index = uploading._copy.put_index

    def unmount_and_put(index: CopyIndex) -> None:
        store.rename(tmp_path / "drive")
        (store / "A").mkdir(parents=True)
        put_index(index)

    uploading._copy.put_index = unmount_and_put  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="may not be mounted"):
        uploading.upload(is_live=True)
    uploading._copy.put_index = put_index  # type: ignore[method-assign]
    shutil.rmtree(store)
    (tmp_path / "drive").rename(store)
    assert uploading.upload(is_live=True).index.step == 20


def test_a_store_of_an_older_version_gets_its_marker(package: PackageFolder, store: Path) -> None:
    uploader(package, store).upload(is_live=True)
    (store / ".roost-store").unlink()
    save(package, 2)
    assert uploader(package, store).upload(is_live=True).index.step == 20
    assert (store / ".roost-store").exists()
