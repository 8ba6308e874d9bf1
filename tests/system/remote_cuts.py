"""Runs whose machine is lost: everything killed, the package deleted, and continued from its remote copy."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import exact

from roost.config.values.store_url import parse_url
from roost.operations.sessions.session_request import StartedSession
from roost.package import live_progress, records
from roost.package.remote import remote_status
from roost.package.remote.copy_index import CopyIndex
from roost.package.remote.remote_copy import RemoteCopy

SLOW = "pause=0.05"
"""Of each sample: a run takes seconds, in which there are several uploads."""


class Cut(NamedTuple):
    """What was lost at a cut."""

    step: int
    """The last step that was trained."""
    durable: int
    """The step of the copy."""


def begin(root: Path, url: str, *overrides: str) -> StartedSession:
    """Starts a run with a remote copy."""
    remote = f"+remote={{url: '{url}', every: 0.2s, wait: 60s}}"
    return exact.start(root, ["net=mlp", SLOW, remote, *overrides])


def copied(url: str, name: str) -> CopyIndex | None:
    """The newest index of the copy."""
    return RemoteCopy.at(parse_url(url), name).newest_index()


def wait_until_durable(started: StartedSession, step: int, url: str) -> bool:
    """Waits until the copy has a checkpoint of this step or a later one; False if the run ended before."""
    assert started.process is not None
    deadline = time.monotonic() + 100
    while started.process.poll() is None:
        found = remote_status.read(started.package)
        if found is not None and found.step is not None and found.step >= step:
            return True
        assert time.monotonic() < deadline, f"not durable: {found}"
        time.sleep(0.005)
    return False


def wait_for_step(started: StartedSession, step: int) -> bool:
    """Waits for a step; False if the run ended before."""
    assert started.process is not None
    while started.process.poll() is None:
        seen = live_progress.read(started.package / "progress")
        if seen is not None and seen.step >= step:
            return True
        time.sleep(0.002)
    return False


def cut(started: StartedSession, url: str) -> Cut:
    """Kills everything and deletes the package; nothing but the remote copy is left."""
    exact.kill_group(started)
    seen = live_progress.read(started.package / "progress")
    claimed = remote_status.read(started.package)
    index = copied(url, started.package.name)
    assert index is not None
    assert claimed is not None
    if claimed.step is not None:  # what was called durable is in the copy
        assert index.step is not None
        assert index.step >= claimed.step
    shutil.rmtree(started.package)
    return Cut(0 if seen is None else seen.step, index.step or 0)


def pull(url: str, name: str, home: Path) -> Path:
    """Restores the package on the "new machine": another home and user name, by the real program."""
    home.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "HOME": str(home),
        "USER": home.name,
        "LOGNAME": home.name,
        **{f"XDG_{one}_HOME": str(home / one.lower()) for one in ("STATE", "CACHE", "CONFIG", "DATA")},
    }
    command = [sys.executable, "-P", "-m", "roost", "pull", f"{url}/{name}", "--into", str(home / "runs")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return home / "runs" / name


def start_step(started: StartedSession) -> int:
    """The step from which a session begins, as soon as it has begun."""
    assert started.process is not None
    deadline = time.monotonic() + 100
    while (start := records.start_step(started.package / "records" / f"{started.session}.jsonl")) is None:
        assert time.monotonic() < deadline, "it has not begun"
        time.sleep(0.005)
    return start


def start_steps(package: Path) -> list[int]:
    """The steps from which the sessions of a package began."""
    files = sorted((package / "records").glob("*.jsonl"), key=lambda path: int(path.stem))
    return [start for path in files if (start := records.start_step(path)) is not None]


def random_cuts(root: Path, url: str, number: int, chance: random.Random, *overrides: str) -> list[Cut]:
    """Cuts runs this many times at random moments, and compares each run with one without interruption."""
    reference = exact.start(root / "reference", ["net=mlp", SLOW, *overrides])
    assert exact.wait(reference) == 0
    expected, cuts = exact.fingerprint(reference.package), list[Cut]()
    while len(cuts) < number:
        place = f"{url}/{len(cuts)}"
        started = begin(root / f"begun-{len(cuts)}", place, *overrides)
        while len(cuts) < number and wait_until_durable(started, 0, place):
            if not wait_for_step(started, chance.randrange(1, 44)):
                break
            time.sleep(chance.uniform(0.0, 0.3))
            if started.process is not None and started.process.poll() is not None:
                break
            cuts.append(cut(started, place))
            package = pull(place, started.package.name, root / f"home-{len(cuts)}")
            started = exact.go_on(package, [])
            assert start_step(started) == cuts[-1].durable
        assert exact.wait(started) == 0
        assert exact.fingerprint(started.package) == expected
        status = remote_status.read(started.package)
        assert status is not None
        assert status.error is None
        assert status.step == expected["step"]
    return cuts
