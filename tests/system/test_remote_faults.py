"""A session whose store fails: training continues, each failure and each recovery is one line, and the end
says what is not durable; `roost push` then continues the upload."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import exact
import pytest
import remote_cuts

from roost.base.system import process_identity
from roost.operations.remote_copies.pull import pull
from roost.operations.remote_copies.push import push
from roost.package.package import PackageFolder
from roost.package.remote import remote_status
from roost.package.remote.remote_status import RemoteStatus
from tests.package.remote.packages import contents
from tests.package.remote.s3_server import s3

pytestmark = pytest.mark.filterwarnings("ignore")  # of botocore and moto


def wait_for(package: Path, condition: Callable[[RemoteStatus], bool]) -> RemoteStatus:
    deadline = time.monotonic() + 100
    while True:
        status = remote_status.read(package)
        if status is not None and condition(status):
            return status
        assert time.monotonic() < deadline, f"it did not come: {status}"
        time.sleep(0.01)


@pytest.mark.timeout(300)
def test_a_store_that_fails_delays_nothing_and_nothing_is_called_durable(tmp_path: Path) -> None:
    with s3() as proxy:
        remote = "+remote={url: 's3://bucket/runs', every: 1s, wait: 2s}"
        started = exact.start(tmp_path, ["net=mlp", remote, "pause=0.6"])
        wait_for(started.package, lambda status: status.step is not None)
        proxy.fault = "full"
        failing = wait_for(started.package, lambda status: status.state == "failing")
        assert failing.error is not None
        assert "remote.keep" in failing.error
        proxy.fault = None
        wait_for(started.package, lambda status: status.state == "idle" and status.error is None)
        proxy.fault, proxy.on_methods = "refused", ("PUT", "GET")
        failing = wait_for(started.package, lambda status: status.state == "failing")
        assert exact.wait(started) == 0  # the guard's exit code: the run has succeeded, and the wait ended
        package = PackageFolder.open(started.package)
        assert package.state == "succeeded"
        proxy.fault = None
        output = package.output.read_text()
        assert len(re.findall(r"^remote copy: .*; the run continues", output, re.MULTILINE)) == 2
        assert len(re.findall(r"^remote copy: the store answers again; durable up to", output, re.M)) == 1
        ended = remote_status.read(package.path)
        assert ended is not None
        assert (ended.state, ended.step) == ("ended", failing.step)
        verdict = output.splitlines()[-1]
        assert verdict.startswith(f"remote copy: NOT durable since step {failing.step}: ")
        assert verdict.endswith(f"; `roost push {package.path.name}` continues it")
        index = remote_cuts.copied("s3://bucket/runs", package.path.name)
        assert index is not None
        assert index.step == failing.step
        assert "very-secret" not in output
        pushed = push(package.path)
        assert pushed.status.step == exact.fingerprint(package.path)["step"]
        assert pushed.status.error is None
        back = pull(f"s3://bucket/runs/{package.path.name}", tmp_path / "back").restored
        assert back is not None
        own = {name: data for name, data in contents(package.path).items() if name != remote_status.NAME}
        assert contents(back.path).items() <= own.items()  # all but the checkpoints that the copy leaves out
        assert {name.split("/")[0] for name in own.keys() - contents(back.path).keys()} <= {"Checkpoints"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("num_kills", [1, pytest.param(4, marks=pytest.mark.soak)])
def test_an_upload_process_that_is_killed_is_started_again_and_at_last_given_up(
    tmp_path: Path, num_kills: int
) -> None:
    remote = f"+remote={{url: '{tmp_path / 'store'}', every: 1s, wait: 100s}}"
    started = exact.start(tmp_path, ["net=mlp", remote, f"pause={0.1 * num_kills}"])
    pids = set[int | None]()
    for _ in range(num_kills):
        killed = wait_for(started.package, lambda status: status.taken is not None and status.pid not in pids)
        assert killed.pid is not None
        pids.add(killed.pid)
        os.kill(killed.pid, signal.SIGKILL)
    assert exact.wait(started) == 0
    step = exact.fingerprint(started.package)["step"]
    lines = PackageFolder.open(started.package).output.read_text().splitlines()
    again = "roost: remote copy: the process that uploads was killed: it is started again"
    assert lines.count(again) == min(num_kills, 3)
    if num_kills == 1:
        assert lines[-1] == f"remote copy: durable up to step {step}"
        return
    assert "roost: remote copy: the process that uploads was killed: nothing more is uploaded" in lines
    name = started.package.name
    assert lines[-1] == f"roost: remote copy: NOT durable to the end; `roost push {name}` continues it"
    assert push(started.package).status.step == step


@pytest.mark.timeout(300)
def test_an_upload_process_that_is_paused_is_not_waited_for_longer_than_asked(tmp_path: Path) -> None:
    """Neither by its answer nor by the upload of the seal; and the output says what is not durable."""
    remote = f"+remote={{url: '{tmp_path / 'store'}', every: 0.2s, wait: 0s}}"
    started = exact.start(tmp_path, ["net=mlp", remote, "pause=0.05"])
    paused = wait_for(started.package, lambda status: status.step is not None)
    assert paused.pid is not None
    os.kill(paused.pid, signal.SIGSTOP)
    assert exact.wait(started) == 0
    assert not process_identity.is_alive(paused.pid, paused.start_ticks, paused.boot_id)
    package = PackageFolder.open(started.package)
    verdict = f"roost: remote copy: NOT durable to the end; `roost push {package.path.name}` continues it"
    assert package.output.read_text().splitlines()[-1] == verdict
    assert push(package.path).status.step == exact.fingerprint(package.path)["step"]
