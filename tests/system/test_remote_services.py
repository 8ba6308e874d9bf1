"""Remote copies in real services: Azure's blobs (Azurite), and an sshd. A run is killed, restored on a new
machine and continued, with the same bits."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
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
from roost.package.remote import remote_status
from roost.package.remote.remote_copy import RemoteCopy
from roost.package.remote.remote_status import RemoteStatus
from tests.package.remote.azure_server import azure
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


def test_an_sshd_that_is_killed_in_the_middle_of_an_upload_delays_nothing(
    tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    folder, store = tmp_path / "server", str(tmp_path / "store")
    folder.mkdir()
    with sftp(folder) as server:
        remote = f"+remote={{url: '{server.url}{store}', every: 0.5s, wait: 100s}}"
        started = exact.start(tmp_path / "runs", ["net=mlp", "pause=0.1", remote])
        package, name = started.package, started.package.name
        wait_for(lambda: status(package).step is not None, 100)
        (package / "big.bin").write_bytes(os.urandom(60_000_000))  # one object
        part = wait_for(lambda: next(large_objects(store, name), None), 100)
        server.kill()
        assert part.stat().st_size < 60_000_000
        failing = wait_for(lambda: (now := status(package)).state == "failing" and now, 100)
        assert failing.error is not None
        assert failing.step == verified_step(store, name)
        stopped_at = step_of(package)
        assert remote_cuts.wait_for_step(started, stopped_at + 5)
        assert status(package).step == failing.step == verified_step(store, name)
        server.start()
        again = wait_for(lambda: (now := status(package)).error is None and now, 100)
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


def large_objects(store: str, name: str) -> Iterator[Path]:
    """The objects of a copy that have more than a megabyte already."""
    return (path for path in Path(store, name, "objects").iterdir() if path.stat().st_size > 1e6)


def status(package: Path) -> RemoteStatus:
    """How far the copy is."""
    return wait_for(lambda: remote_status.read(package), 100)


def step_of(package: Path) -> int:
    """The step that was trained last."""
    seen = live_progress.read(package / "progress")
    assert seen is not None
    return seen.step
