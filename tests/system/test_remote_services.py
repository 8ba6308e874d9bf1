"""Remote copies in real services: Azure's blobs (Azurite), an sshd, and a mounted drive (FUSE). A run is
killed, restored on a new machine and continued, with the same bits."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import exact
import pytest
import remote_cuts

from roost.base.errors import NotFound, RoostError
from roost.config.values.store_url import parse_url
from roost.operations.remote_copies.pull import pull
from roost.operations.remote_copies.push import push
from roost.package import live_progress
from roost.package.package import PackageFolder
from roost.package.remote import fsspec_store, remote_status
from roost.package.remote.local_files import PIECE_BYTES
from roost.package.remote.remote_copy import RemoteCopy, open_store
from roost.package.remote.remote_status import RemoteStatus
from roost.package.remote.store import StoreError
from tests.package.remote.azure_server import KEY, azure
from tests.package.remote.drive import drive
from tests.package.remote.packages import contents, make, save
from tests.package.remote.sftp_server import sftp
from tests.waiting import wait_for

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the run without interruption."""
    started = exact.start(tmp_path_factory.mktemp("reference"), ["net=mlp", remote_cuts.SLOW])
    assert exact.wait(started) == 0
    return exact.fingerprint(started.package)


@pytest.fixture(params=["azure", "sftp with a key", "sftp with an agent"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store; the homes of two more machines may reach it, too."""
    folder = tmp_path / "server"
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        if request.param == "azure":
            stack.enter_context(azure(folder))
            yield "az://container/some/runs"
            return
        server = stack.enter_context(sftp(folder, has_agent="agent" in request.param))
        for home in ("home-1", "home-2"):
            shutil.copytree(server.home, tmp_path / home)
        yield f"{server.url}{tmp_path}/store/runs"


def test_a_run_that_is_killed_twice_ends_with_the_same_bits(
    tmp_path: Path, url: str, uninterrupted: dict[str, Any]
) -> None:
    started = remote_cuts.begin(tmp_path / "first", url)
    for number, step in ((1, 5), (2, 20)):
        assert remote_cuts.wait_until_durable(started, step, url), "the run ended before"
        assert remote_cuts.cut(started, url).durable >= step
        package = remote_cuts.pull(url, started.package.name, tmp_path / f"home-{number}")
        started = exact.go_on(package, [])
    assert exact.wait(started) == 0
    assert exact.fingerprint(started.package) == uninterrupted
    last = PackageFolder.open(started.package).output.read_text().splitlines()[-1]
    assert last == f"remote copy: durable up to step {uninterrupted['step']}"
    index = remote_cuts.copied(url, started.package.name)
    assert index is not None
    assert index.ended
    assert index.step == uninterrupted["step"]
    files = [path for path in started.package.rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_package_is_pushed_listed_and_pulled(tmp_path: Path, url: str) -> None:
    packages = [make(tmp_path / "runs", name) for name in ("A", "AB")]  # one name begins with the other
    for package in packages:
        save(package, 0)
        assert push(package.path, url).status.step == 0
    first = packages[0]
    (first.path / "big.bin").write_bytes(bytes(range(256)) * 2**17)
    save(first, 1)
    assert push(first.path).status.step == 10
    assert push(first.path).upload.put_bytes == 0
    assert [(one.name, one.error) for one in pull(url, tmp_path / "back").copies] == [
        ("A", None),
        ("AB", None),
    ]
    restored = pull(f"{url}/A", tmp_path / "back").restored
    assert restored is not None
    own = {name: data for name, data in contents(first.path).items() if name != remote_status.NAME}
    assert contents(restored.path) == own
    for wrong in (f"{url}/B", f"{url}/A/B", f"{url}s", url.rpartition("/")[0] + "/ru"):
        with pytest.raises(NotFound, match="no remote copy"):
            pull(wrong, tmp_path / "back")


def test_a_container_that_does_not_exist_is_named(tmp_path: Path) -> None:
    package = make(tmp_path / "runs")
    save(package, 0)
    with azure(tmp_path, container=None), pytest.raises(RoostError) as error:
        push(package.path, "az://container/runs")
    assert str(error.value).endswith("does not exist.; fix: make the container first: roost makes none")


def verified_step(url: str, name: str) -> int | None:
    """The step of a copy in a folder, each object of which is read."""
    index, copy = remote_cuts.copied(url, name), RemoteCopy.at(parse_url(url), name)
    for one, size in {} if index is None else index.objects().items():
        copy.get_object(one, size)
    return None if index is None else index.step


def test_only_a_known_host_is_reached(tmp_path: Path) -> None:
    with sftp(tmp_path) as server:
        url = parse_url(f"{server.url}{tmp_path}/store")
        assert open_store(url).folders() == []
        hosts = server.home / ".ssh" / "known_hosts"
        kind = hosts.read_text().split()[1]
        other = (tmp_path / "home" / ".ssh" / "id_ed25519.pub").read_text().split()
        for text in ("", hosts.read_text().replace(kind, other[0]).rpartition(" ")[0] + f" {other[1]}\n"):
            hosts.write_text(text)
            with pytest.raises(StoreError, match=r"is not in ~/\.ssh/known_hosts"):
                open_store(url)


def test_an_sshd_that_is_killed_in_the_middle_of_an_upload_delays_nothing(
    tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    folder, store = tmp_path / "server", str(tmp_path / "store")
    folder.mkdir()
    with sftp(folder) as server:
        remote = f"+remote={{url: '{server.url}{store}', every: 0.5s, wait: 100s}}"
        started = exact.start(tmp_path / "runs", ["net=mlp", "pause=0.1", remote])
        package, name = started.package, started.package.name
        wait_for(lambda: status(package).step is not None)
        (package / "big.bin").write_bytes(os.urandom(4 * PIECE_BYTES))
        wait_for(lambda: has_part(store, name))
        server.kill()
        failing = wait_for(lambda: (now := status(package)).state == "failing" and now)
        assert failing.error is not None
        assert failing.step == verified_step(store, name)
        stopped_at = step_of(package)
        assert remote_cuts.wait_for_step(started, stopped_at + 5)
        assert status(package).step == failing.step == verified_step(store, name)
        server.start()
        again = wait_for(lambda: (now := status(package)).error is None and now)
        copied = verified_step(store, name)
        assert copied is not None
        assert again.step is not None
        assert copied >= again.step > failing.step
        for pid in server.pids()[1:]:  # the client sees no end of the connection
            os.kill(pid, signal.SIGSTOP)
        assert remote_cuts.wait_for_step(started, step_of(package) + 5)
        for pid in server.pids()[1:]:
            os.kill(pid, signal.SIGCONT)
        Path(store).rename(tmp_path / "removed")  # it is put again, its folders, too
        assert exact.wait(started) == 0
        output = PackageFolder.open(package).output.read_text()
        assert output.splitlines()[-1] == f"remote copy: durable up to step {uninterrupted['step']}"
        assert verified_step(store, name) == uninterrupted["step"]
        assert exact.fingerprint(package) == uninterrupted
        restored = pull(f"{server.url}{store}/{name}", tmp_path / "back").restored
        assert restored is not None
        assert exact.fingerprint(restored.path) == uninterrupted
        assert (restored.path / "big.bin").read_bytes() == (package / "big.bin").read_bytes()


@pytest.mark.parametrize("scheme, library", [("s3", "s3fs"), ("gs", "gcsfs"), ("sftp", "paramiko")])
def test_a_server_that_says_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch, scheme: str, library: str
) -> None:
    pytest.importorskip(library)
    for name in ("READ_SECONDS", "CONNECT_SECONDS"):
        monkeypatch.setattr(fsspec_store, name, 1.0)
        monkeypatch.setattr("roost.package.remote.sftp_store." + name, 1.0, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{place}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "very-secret",
            "STORAGE_EMULATOR_HOST": f"http://{place}",
            "GOOGLE_CLOUD_PROJECT": "test",
        }.items():
            monkeypatch.setenv(name, value)
        bucket = place if scheme == "sftp" else "bucket"
        with pytest.raises(StoreError, match=r"cannot be (read|reached)|cannot list"):
            pull(f"{scheme}://{bucket}/runs/A", Path("unused"))


def test_an_sftp_server_that_stops_in_the_middle_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("paramiko")
    monkeypatch.setattr("roost.package.remote.sftp_store.READ_SECONDS", 1.0)
    with sftp(tmp_path) as server:
        store = open_store(parse_url(f"{server.url}{tmp_path}/store/A"))
        store.put("one", b"1" * 2**20)
        for call in (lambda: store.put("two", b"2" * 2**24), lambda: store.get("one"), store.folders):
            store.folders()  # connected
            pids = server.pids()[1:]
            assert pids
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            with pytest.raises(StoreError):
                call()
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            assert store.get("one") == b"1" * 2**20  # connected again
        wait_for(lambda: len(server.pids()) <= 3)  # of all connections one is left


def has_part(store: str, name: str) -> bool:
    """Whether a piece of a large file is being written."""
    sizes = (path.stat().st_size for path in Path(store, name, "objects").iterdir())
    return any(2**20 < size < PIECE_BYTES for size in sizes)


def test_a_drive_that_fails_in_every_way_delays_nothing(
    tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    with drive(tmp_path) as mounted:
        url = f"{mounted.path}/some/runs"
        started = remote_cuts.begin(tmp_path / "runs", url, "pause=0.15")
        package, name = started.package, started.package.name

        def requires_failure(text: str) -> None:
            failing = wait_for(lambda: (now := status(package)).state == "failing" and now)
            assert failing.error is not None
            assert text in failing.error
            assert failing.step == verified_step(cloud, name)
            assert remote_cuts.wait_for_step(started, step_of(package) + 3), "the run ended before"
            assert status(package).step == failing.step

        def requires_recovery() -> None:
            wait_for(lambda: (now := status(package)).error is None and now.state == "idle")

        cloud = f"{mounted.cloud}/some/runs"
        wait_for(lambda: status(package).step is not None)
        assert not status(package).is_proven
        mounted.set_full(True)
        requires_failure("cannot write")
        mounted.set_full(False)
        requires_recovery()
        mounted.unmount()
        requires_failure("a drive may not be mounted")
        assert not list(mounted.path.iterdir())
        mounted.mount()
        requires_recovery()
        mounted.kill()
        requires_failure("not connected")
        subprocess.run(["fusermount3", "-u", "-z", mounted.path], check=True)
        mounted.mount()
        requires_recovery()
        remote_cuts.cut(started, url)
        pulled = remote_cuts.pull(url, name, tmp_path / "home")
        mounted.unmount()
        with pytest.raises(NotFound):
            pull(f"{url}/{name}", tmp_path / "back")
        mounted.mount()
        again = exact.go_on(pulled, [])
        assert exact.wait(again) == 0
        assert exact.fingerprint(again.package) == uninterrupted
        last = PackageFolder.open(again.package).output.read_text().splitlines()[-1]
        assert last == f"remote copy: copied up to step {uninterrupted['step']}, not proven durable"
        assert verified_step(cloud, name) == uninterrupted["step"]


def test_a_drive_is_flushed_before_anything_is_called_durable(tmp_path: Path) -> None:
    with drive(tmp_path) as mounted:
        package = make(tmp_path / "runs")
        save(package, 0)
        url, flush = f"{mounted.path}/runs", tmp_path / "flush"
        flush.write_text(
            f"#!/bin/sh\nls {mounted.cloud}/runs/A >> {tmp_path}/seen\ntest ! -e {tmp_path}/offline\n"
        )
        flush.chmod(0o755)
        (tmp_path / "offline").touch()
        package.new_session({"kind": "train", "remote": {"url": url, "flush": str(flush)}})
        with pytest.raises(RoostError, match=r"remote\.flush failed"):
            push(package.path)
        assert remote_status.read(package.path) is None
        (tmp_path / "offline").unlink()
        pushed = push(package.path).status
        assert remote_status.describe(pushed) == "durable up to step 0"
        assert (tmp_path / "seen").read_text().splitlines().count("index-1.json") == 2
        package.new_session({"kind": "train", "remote": {"url": url}})
        save(package, 1)
        assert remote_status.describe(push(package.path).status) == "copied up to step 10, not proven durable"


def status(package: Path) -> RemoteStatus:
    """How far the copy is."""
    return wait_for(lambda: remote_status.read(package))


def step_of(package: Path) -> int:
    """The step that was trained last."""
    seen = live_progress.read(package / "progress")
    assert seen is not None
    return seen.step
