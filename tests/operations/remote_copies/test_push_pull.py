"""`push` and `pull` as operations: which store, what is listed, what is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, NotFound, Refused, UsageError
from roost.operations.remote_copies.pull import pull
from roost.operations.remote_copies.push import push
from roost.package.package import PackageFolder
from roost.package.remote import ownership, remote_status
from roost.package.remote.upload import CopyTaken, Uploader, UploadOptions
from tests.cli.programs import roost
from tests.messages import Messages
from tests.package.remote.packages import contents, copy_of, make, save


def test_a_package_is_pushed_again_to_the_store_that_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    package = make(tmp_path / "runs")
    save(package, 0)
    with pytest.raises(UsageError) as error:
        push(package.path)
    messages.check(error.value)
    monkeypatch.chdir(tmp_path)
    first = push(package.path, "store")  # a path of the current folder
    assert first.url == str(tmp_path / "store" / "A")
    assert first.upload.put_bytes > 0
    again = push(package.path)
    assert again.upload.put_bytes == 0
    status = remote_status.read(package.path)
    assert status is not None
    assert (status.step, status.error, status.state) == (0, None, "ended")
    assert remote_status.describe(status) == "durable up to step 0"


def test_a_package_of_another_name_is_not_durable_by_the_copy_of_the_former_one(tmp_path: Path) -> None:
    """It was copied or renamed, with its remote.json: the store has nothing of that name."""
    package = make(tmp_path / "runs")
    save(package, 0)
    push(package.path, str(tmp_path / "store"))
    renamed = package.path.rename(tmp_path / "runs" / "B")
    status = remote_status.read(renamed)
    assert status is not None
    assert (status.step, remote_status.describe(status)) == (None, "not durable at all")
    assert push(renamed).url == str(tmp_path / "store" / "B")  # the store is still known
    status = remote_status.read(renamed)
    assert status is not None
    assert status.step == 0


def test_the_session_settings_name_the_store_and_its_options(tmp_path: Path) -> None:
    package = make(tmp_path / "runs")
    for id in range(3):
        save(package, id)
    package.new_session({"kind": "train", "remote": {"url": str(tmp_path / "store"), "keep": 1}})
    pushed = push(package.path)
    assert [one.id for one in pushed.upload.index.checkpoints] == [2]


def test_two_processes_do_not_upload_one_package(tmp_path: Path, messages: Messages) -> None:
    package = make(tmp_path / "runs")
    fd = ownership.lock_uploads(package.path)
    assert fd is not None
    with pytest.raises(Refused) as error:
        push(package.path, str(tmp_path / "store"))
    messages.check(error.value)
    os.close(fd)
    push(package.path, str(tmp_path / "store"))


@pytest.mark.parametrize("num_writes", [2, 100])
def test_a_copy_is_taken_although_its_owner_writes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages, num_writes: int
) -> None:
    package, store = make(tmp_path / "runs"), tmp_path / "store"
    save(package, 0)
    push(package.path, str(store))
    shutil.copytree(package.path, tmp_path / "there" / "A")
    there, put, writes = PackageFolder.open(tmp_path / "there" / "A"), Uploader._put, iter(range(num_writes))
    there.new_session({"kind": "train", "token": "other"})
    (there.path / "records" / "2.jsonl").write_bytes(b'{"session":2,"start_step":0}\n')
    owner = Uploader(there, copy_of(store), UploadOptions())

    def put_while_the_owner_writes(self: Uploader, *how: Any) -> None:
        put(self, *how)
        if self is not owner and (number := next(writes, None)) is not None:
            save(there, number + 10, session=2)
            owner.upload(is_live=True)

    monkeypatch.setattr(Uploader, "_put", put_while_the_owner_writes)
    save(package, 1)
    if num_writes > 10:
        with pytest.raises(Refused) as error:
            push(package.path, steal=True)
        messages.check(error.value)
        return
    assert push(package.path, steal=True).status.step == 10
    with pytest.raises(CopyTaken):
        owner.upload(is_live=True)
    back = pull(f"{store}/A", tmp_path / "back").restored
    assert back is not None
    assert (back.path / "Checkpoints" / "state_1.ckpt").is_dir()


def test_a_folder_of_copies_is_listed_and_one_is_restored(tmp_path: Path, messages: Messages) -> None:
    store = tmp_path / "store"
    with pytest.raises(NotFound) as error:
        pull(str(store), tmp_path / "back")
    messages.check(error.value)
    package = make(tmp_path / "runs")
    save(package, 0)
    push(package.path, str(store))
    (store / "B").mkdir()
    (store / "B" / "index-1.json").write_bytes(b"{}")
    listed = pull(str(store), tmp_path / "back")
    assert listed.restored is None
    assert [(one.name, one.copied is not None) for one in listed.copies] == [("A", True), ("B", False)]
    restored = pull(str(store / "A"), tmp_path / "back").restored
    assert restored is not None
    own = {name: data for name, data in contents(package.path).items() if name != remote_status.NAME}
    assert contents(restored.path) == own


def test_push_verify_names_what_is_bad_and_ends_with_1(tmp_path: Path) -> None:
    package = make(tmp_path / "runs")
    for id in range(2):
        save(package, id)
    words, store = ("push", package.path, tmp_path / "store", "--verify"), tmp_path / "store" / "A"
    first = roost(*words)
    assert first.returncode == 0 and "0 B of the copy read" in first.stderr
    shutil.rmtree(package.checkpoints / "state_1.ckpt")
    files = copy_of(tmp_path / "store").require_index().files
    gone, kept = "Checkpoints/state_1.ckpt/model.json", "Checkpoints/state_0.ckpt/model.json"
    (store / "objects" / files[gone].pieces[0]).unlink()
    (store / "objects" / files[kept].pieces[0]).write_bytes(b"other")
    found = roost(*words)
    assert found.returncode == 1 and "2 lost or damaged" in found.stderr
    assert f"lost: {gone}; the package has it no more" in found.stderr
    assert f"damaged: {kept}; uploaded again" in found.stderr
    assert found.stderr.strip().endswith("durable up to step 0")
    again = roost(*words)
    assert again.returncode == 0 and "nothing lost or damaged" in again.stderr


def test_a_url_with_one_slash_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        push(make(tmp_path / "runs").path, "s3:/bucket/runs")
    messages.check(error.value)
    assert not (tmp_path / "s3:").exists()
