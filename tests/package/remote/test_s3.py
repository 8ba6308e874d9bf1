"""Remote copies in a real S3 server, and what is called durable when it fails."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base.errors import RoostError
from roost.config.values.store_url import parse_url
from roost.package.package import PackageFolder
from roost.package.remote import restore
from roost.package.remote.remote_copy import RemoteCopy, copies_below
from roost.package.remote.store import StoreError
from roost.package.remote.upload import Uploader, UploadOptions
from tests.messages import Messages
from tests.package.remote.packages import contents, make, save
from tests.package.remote.s3_server import FAULTS, FaultyProxy, s3

pytestmark = pytest.mark.filterwarnings("ignore")  # of botocore and moto


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyProxy]:
    with s3() as proxy:
        yield proxy


@pytest.fixture
def proxy(server: FaultyProxy) -> Iterator[FaultyProxy]:
    server.fault, server.on_methods, server.on_path, server.num_faults = None, ("PUT",), "", 0
    server.arrived.clear()
    server.release.clear()
    yield server
    server.fault = None


@pytest.fixture
def package(tmp_path: Path) -> PackageFolder:
    made = make(tmp_path / "runs", f"run-{os.urandom(4).hex()}")
    save(made, 0)
    return made


def copy_of(package: PackageFolder) -> RemoteCopy:
    return RemoteCopy.at(parse_url("s3://bucket/runs"), package.path.name)


def test_a_package_goes_up_in_pieces_and_comes_back(
    proxy: FaultyProxy, package: PackageFolder, tmp_path: Path
) -> None:
    (package.path / "big.bin").write_bytes(os.urandom(900_000))
    uploader = Uploader(package, copy_of(package), UploadOptions(max_mb_per_second=100))
    uploader._reader._piece_bytes = 300_000
    result = uploader.upload(is_live=False)
    assert len(result.index.files["big.bin"].pieces) == 3
    save(package, 1)
    assert uploader.upload(is_live=False).index.step == 10
    back = restore.restore(copy_of(package), tmp_path / "back")
    assert contents(back.path) == contents(package.path)
    assert package.path.name in dict(copies_below(parse_url("s3://bucket/runs")))
    needed = {name for index in copy_of(package).kept_indexes() for name in index.objects()}
    assert set(copy_of(package).objects()) == needed


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_called_durable_that_is_not(
    proxy: FaultyProxy, package: PackageFolder, tmp_path: Path, fault: str, messages: Messages
) -> None:
    """The store fails from the second upload on: the copy stays at the first one, until it works again."""
    uploader = Uploader(package, copy_of(package), UploadOptions())
    uploader.upload(is_live=True)
    save(package, 1, data=os.urandom(50_000))
    proxy.fault = fault
    with pytest.raises(RoostError) as error:
        uploader.upload(is_live=True)
    assert proxy.num_faults > 0
    assert "very-secret" not in str(error.value)
    if fault in ("expired", "skewed"):
        messages.check(re.sub(r"run-\w+|objects/\w+", "…", str(error.value)))
    proxy.fault = None
    index = copy_of(package).require_index()
    assert index.step == 0
    back = restore.restore(copy_of(package), tmp_path / "before")  # the first upload is still whole
    assert (back.path / "Checkpoints" / "state_0.ckpt").is_dir()
    assert uploader.upload(is_live=False).index.step == 10
    restore.restore(copy_of(package), tmp_path / "after")
    assert contents(tmp_path / "after" / package.path.name) == contents(package.path)


@pytest.mark.parametrize(("fault", "method"), [("full", "GET"), ("lying", "PUT")])
def test_an_index_whose_put_failed_is_not_taken_for_that_of_another_machine(
    proxy: FaultyProxy, package: PackageFolder, tmp_path: Path, fault: str, method: str
) -> None:
    """The store has the new index, all of it or a part, and fails before that is known."""
    uploader = Uploader(package, copy_of(package), UploadOptions())
    uploader.upload(is_live=True)
    save(package, 1)
    proxy.fault, proxy.on_methods, proxy.on_path = fault, (method,), "index-2"
    with pytest.raises(StoreError):
        uploader.upload(is_live=True)
    assert proxy.num_faults > 0
    proxy.fault = None
    assert 2 in copy_of(package).index_numbers()
    assert uploader.upload(is_live=True).index.step == 10
    restore.restore(copy_of(package), tmp_path)
    assert contents(tmp_path / package.path.name) == contents(package.path)


def test_a_store_that_lies_about_sizes_is_found_without_reading_again(
    proxy: FaultyProxy, package: PackageFolder
) -> None:
    proxy.fault = "lying"
    with pytest.raises(RoostError):
        Uploader(package, copy_of(package), UploadOptions(verify_bytes=False)).upload(is_live=True)
    proxy.fault = None
    assert copy_of(package).newest_index() is None


def test_a_store_that_gives_wrong_bytes_back_is_found(
    proxy: FaultyProxy, package: PackageFolder, tmp_path: Path
) -> None:
    """At a restore, too: objects are read by other machines, years later."""
    uploader = Uploader(package, copy_of(package), UploadOptions())
    uploader.upload(is_live=True)
    store = copy_of(package).store
    name = max(copy_of(package).objects().items(), key=lambda one: one[1])[0]
    store.put(f"objects/{name}", b"?" * len(store.get(f"objects/{name}")))
    with pytest.raises(RoostError):
        restore.restore(copy_of(package), tmp_path / "back")
    assert not (tmp_path / "back" / package.path.name).exists()


def test_a_bucket_that_does_not_exist_is_not_made(
    proxy: FaultyProxy, package: PackageFolder, messages: Messages
) -> None:
    copy = RemoteCopy.at(parse_url("s3://missing-bucket/runs"), package.path.name)
    with pytest.raises(RoostError) as error:
        Uploader(package, copy, UploadOptions()).upload(is_live=True)
    messages.check(re.sub(r"run-\w+|objects/\w+", "…", str(error.value)))


def test_an_upload_that_hangs_can_be_stopped(proxy: FaultyProxy, package: PackageFolder) -> None:
    stop, ended = threading.Event(), list[BaseException]()
    uploader = Uploader(package, copy_of(package), UploadOptions(), stop=stop)
    uploader.connect()
    proxy.fault = "slow"

    def upload() -> None:
        try:
            uploader.upload(is_live=True)
        except BaseException as error:  # noqa: BLE001  - looked at below
            ended.append(error)

    thread = threading.Thread(target=upload)
    thread.start()
    assert proxy.arrived.wait(100)
    stop.set()
    proxy.release.set()
    thread.join(100)
    assert [type(error).__name__ for error in ended] == ["UploadStopped"]
    assert copy_of(package).newest_index() is None
