from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from roost import __version__
from roost.base import process
from roost.base.errors import RoostError
from roost.lab import background
from roost.lab.background import About
from tests.waiting import wait_for

LASTS = """
import os, sys, time
from pathlib import Path
from roost.lab import background
print("begun", flush=True)
background.tell(Path(sys.argv[1]), background.About.own())
background.ready(int(sys.argv[2]))
print("nobody reads", os.getcwd(), file=sys.stderr, flush=True)
time.sleep(600)
"""
KILLED = """
import os, sys
with open(sys.argv[1], "a") as file:
    file.write("x")
    file.flush()
    if file.tell() <= int(sys.argv[2]):
        os.kill(os.getpid(), 9)
os.write(int(sys.argv[-1]), b"ready")
"""


@pytest.fixture
def files() -> Iterator[None]:
    """No descriptor is left."""
    before = sorted(Path("/proc/self/fd").iterdir())
    yield
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def program(script: str, *arguments: object) -> list[str]:
    isolated = [] if "roost" in script else ["-I", "-S"]
    return [sys.executable, *isolated, "-c", script, *map(str, arguments)]


@pytest.mark.usefixtures("files")
def test_from_start_to_end(tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "about"
    assert background.start(program(LASTS, path), log, seconds=20) is None
    found = background.about(path, About)
    assert found is not None and found.version == __version__
    assert os.getsid(found.pid) == found.pid, "no terminal takes it along"
    wait_for(lambda: log.read_text() == "begun\nnobody reads /\n")
    assert {one.stat().st_mode & 0o777 for one in (log, path)} == {0o600}
    background.end(found, "the program")
    assert not found.lives and background.about(path, About) is None


@pytest.mark.usefixtures("files")
def test_one_that_does_not_end_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_END_SECONDS", 0.1)
    assert background.start(program(LASTS, tmp_path / "about"), tmp_path / "log", seconds=20) is None
    found = background.about(tmp_path / "about", About)
    assert found is not None
    os.kill(found.pid, signal.SIGSTOP)
    wait_for(lambda: (stat := process.read_stat(found.pid)) is not None and stat.state == "T")
    with pytest.raises(RoostError, match=rf"the program \(pid {found.pid}\) does not end.*kill -9"):
        background.end(found, "the program")
    os.kill(found.pid, signal.SIGKILL)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("script", "said", "code"),
    [
        ("import sys; sys.exit('no room')", "no room", 1),
        ("import sys; sys.exit(5)", "", 5),
        ("import time; print('p', flush=True); time.sleep(600)", "", None),
        ("import os, sys, time; os.close(int(sys.argv[1])); sys.stderr.write('b\\xe4h'); sys.stderr.flush(); "
         "time.sleep(600)", "b\xe4h", None),
    ],
    ids=["says why", "says nothing", "is not ready in time", "closes its line and stays"],
)  # fmt: skip
def test_one_that_does_not_start(
    tmp_path: Path, script: str, said: str, code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_END_SECONDS", 0.3)
    noted = f"import os; os.write(1, b'%d ' % os.getpid()); {script}"
    assert background.start(program(noted), tmp_path / "log", seconds=0.5) == (said, code)
    pid = int((tmp_path / "log").read_text().split()[0])
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("times", "starts"), [(1, 2), (2, 2)])
def test_one_that_was_killed_is_started_once_more(tmp_path: Path, times: int, starts: int) -> None:
    found = background.start(program(KILLED, tmp_path / "count", times), tmp_path / "log", seconds=20)
    assert (tmp_path / "count").read_text() == "x" * starts
    assert found is None if times == 1 else found.said.startswith("it was killed by SIGKILL")


@pytest.mark.usefixtures("files")
def test_a_log_or_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        background.start(program("print('x')"), tmp_path / "link", seconds=20)
    with pytest.raises(OSError, match="symbolic links"):
        background.lock(tmp_path / "link")
    assert (tmp_path / "other").read_text() == "mine"


def test_who_has_started_it_may_have_ended_before_it_is_ready(tmp_path: Path) -> None:
    script = "import sys; from roost.lab import background; background.ready(int(sys.argv[1])); print('on')"
    read_fd, its_fd = os.pipe()
    os.close(read_fd)
    done = subprocess.run(program(script, its_fd), pass_fds=[its_fd], capture_output=True, text=True)
    os.close(its_fd)
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")


def test_the_lock_is_one_process_s_until_it_ends(tmp_path: Path) -> None:
    fd = background.lock(tmp_path / "lock")
    assert fd is not None and background.lock(tmp_path / "lock") is None
    os.close(fd)
    again = background.lock(tmp_path / "lock")
    assert again is not None
    os.close(again)


def test_another_process_of_the_same_number_is_not_it(tmp_path: Path) -> None:
    own, path = About.own(), tmp_path / "about"
    for other in ({"start_ticks": (own.start_ticks or 0) + 1}, {"boot_id": "another boot"}):
        background.tell(path, msgspec.structs.replace(own, **other))
        assert background.about(path, About) is None
    background.tell(path, own)
    assert background.about(path, About) == own


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"pid": 1}', b'{"pid": "x"}', b"\xff", b'{"a":' * 10**5, b"[" * 10**5]
)
def test_a_damaged_file_tells_of_nobody(tmp_path: Path, content: bytes) -> None:
    assert background.about(tmp_path / "about", About) is None
    (tmp_path / "about").write_bytes(content)
    assert background.about(tmp_path / "about", About) is None
