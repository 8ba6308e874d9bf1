"""A machine is lost with its disk; the run continues on a new one from its remote copy, for another user with
another home, bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import exact
import pytest

from roost.package.package import PackageFolder
from roost.package.remote import remote_status
from tests.processes import kill_all_in
from tests.waiting import wait_for

OTHER_USER = 65534


PATHS = os.pathsep.join(path for path in sys.path if path)


def interpreter() -> str | None:
    """A Python of this version that another user may start, with the packages of this one; None: there is
    none, or this test may not become another user."""
    if os.geteuid() != 0:
        return None
    for found in (
        sys.executable,
        shutil.which(f"python{sys.version_info[0]}.{sys.version_info[1]}", path="/usr/bin"),
    ):
        with suppress(OSError):
            if (
                found is not None
                and as_user([found, "-c", "import roost, torch"], Path("/"), {}).returncode == 0
            ):
                return found
    return None


def as_user(
    command: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs a command as the other user."""
    return subprocess.run(
        command,
        user=OTHER_USER, group=OTHER_USER, extra_groups=[], cwd=folder,
        env={"PYTHONPATH": PATHS, **environment}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may read; those of pytest are for one."""
    folder = Path(tempfile.mkdtemp(prefix="roost-test-"))
    folder.chmod(0o755)
    yield folder
    kill_all_in(folder)
    shutil.rmtree(folder)


def lose_machine(package: Path, guard: int) -> None:
    """Kills every process of a run at once, and removes its disk."""
    status = remote_status.read(package)
    record = json.loads((package / "sessions" / "1.json").read_text())
    uploads = [] if status is None or status.pid is None else [status.pid]
    for pid in (guard, record["pid"], *uploads, record["worker_pid"]):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not (package / "progress").exists() or PackageFolder.open(package).state == "crashed")
    shutil.rmtree(package)


@pytest.mark.timeout(600)
def test_the_same_bits_for_another_user_on_a_new_machine(tmp_path: Path, shared: Path) -> None:
    python = interpreter()
    if python is None:
        pytest.skip("only root can become another user, who needs a readable Python")
    whole = exact.start(tmp_path / "whole", ["net=mlp", "pause=0"])
    store = shared / "store"
    cut = exact.start(tmp_path / "cut", ["net=mlp", "pause=0.1", f"+remote={{url: {store}, every: 1s}}"])
    assert cut.process is not None
    assert exact.wait(whole) == 0

    def is_durable() -> bool:
        status = remote_status.read(cut.package)
        return status is not None and (status.step or 0) >= 10

    wait_for(is_durable)
    status = remote_status.read(cut.package)
    assert status is not None and status.step is not None
    lose_machine(cut.package, cut.process.pid)
    cut.process.wait()

    home = shared / "home"
    home.mkdir()
    for path in (home, store, *store.rglob("*")):
        os.chown(path, OTHER_USER, OTHER_USER)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment = {**kept, "HOME": str(home), "USER": "nobody", "LOGNAME": "nobody"}

    def as_other(*words: str) -> None:
        done = as_user([python, "-m", "roost", *words], home, environment)
        assert done.returncode == 0, done.stdout + done.stderr

    as_other("pull", f"{store}/{cut.package.name}", "--into", "elsewhere")
    pulled = home / "elsewhere" / cut.package.name
    assert pulled.stat().st_uid == OTHER_USER and not (pulled / "sessions" / "owner.json").exists()
    as_other("continue", f"elsewhere/{cut.package.name}", "--steal")
    session = PackageFolder.open(pulled).sessions()[-1]
    assert session.number == 2 and session.recorded.state == "succeeded"
    begun = json.loads((pulled / "records" / "2.jsonl").read_text().splitlines()[0])["start_step"]
    assert begun >= status.step
    assert exact.fingerprint(pulled) == exact.fingerprint(whole.package)
