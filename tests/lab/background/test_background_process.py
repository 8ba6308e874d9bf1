from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from roost import __version__
from roost.base.errors import Refused, RoostError
from roost.base.system import process_identity
from roost.lab.background import background_process
from roost.lab.background.background_process import ProcessFiles, ProcessRecord
from tests import processes
from tests.messages import Messages
from tests.waiting import wait_for

LASTS = """
import os, sys, time
from pathlib import Path
from roost.lab.background import background_process as background
print("begun", flush=True)
files = background.ProcessFiles.of(Path(sys.argv[1]), "about")
fd = background.lock(files.lock)
background.write_record(files, background.ProcessRecord.of_this_process())
background.Starter(int(sys.argv[2])).ready()
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
os.write(int(sys.argv[-1]), b"ready\\n")
"""
FAILS = """
import sys
from pathlib import Path
from roost.base.errors import ConfigError, Refused, RoostError
from roost.lab.background import background_process as background
starter = background.Starter(int(sys.argv[1]))
sys.exit(starter.failed({}))
"""


@pytest.fixture
def descriptors() -> Iterator[None]:
    """No descriptor is left."""
    before = sorted(Path("/proc/self/fd").iterdir())
    yield
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def program(script: str, *arguments: object) -> list[str]:
    isolated = [] if "roost" in script else ["-I", "-S"]
    return [sys.executable, *isolated, "-c", script, *map(str, arguments)]


def start(command: list[str], log: Path, *, seconds: float = 20.0) -> RoostError | None:
    return background_process.start(command, log, what="the program", seconds=seconds)


@pytest.mark.usefixtures("descriptors")
def test_from_start_to_end(tmp_path: Path) -> None:
    files = ProcessFiles.of(tmp_path, "about")
    log, path = files.log, files.record
    assert start(program(LASTS, tmp_path), log) is None
    found = background_process.find_running(files, ProcessRecord)
    assert found is not None and found.version == __version__
    assert os.getsid(found.pid) != os.getsid(0), "no terminal takes it along"
    wait_for(lambda: log.read_text() == "begun\nnobody reads /\n")
    assert {one.stat().st_mode & 0o777 for one in (log, path)} == {0o600}
    background_process.end(found, "the program")
    assert not found.is_alive and background_process.find_running(files, ProcessRecord) is None


@pytest.mark.usefixtures("descriptors")
def test_one_that_does_not_end_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_process, "_END_SECONDS", 0.1)
    files = ProcessFiles.of(tmp_path, "about")
    assert start(program(LASTS, tmp_path), files.log) is None
    found = background_process.find_running(files, ProcessRecord)
    assert found is not None
    os.kill(found.pid, signal.SIGSTOP)
    wait_for(lambda: (stat := process_identity.read_stat(found.pid)) is not None and stat.state == "T")
    with pytest.raises(RoostError, match=rf"the program \(pid {found.pid}\).*kill -9"):
        background_process.stop(files, ProcessRecord, "the program")
    os.kill(found.pid, signal.SIGKILL)
    wait_for(lambda: processes.is_gone(keeper_of(files.record)))
    assert "SIGKILL" not in files.log.read_text()


def keeper_of(path: Path) -> int:
    return int(json.loads(path.read_bytes())["keeper"]["pid"])


@pytest.mark.usefixtures("descriptors")
def test_one_that_was_killed_is_stopped_before_it_is_started_anew(tmp_path: Path) -> None:
    files = ProcessFiles.of(tmp_path, "about")
    log, path = files.log, files.record
    assert start(program(LASTS, tmp_path), log) is None
    found = background_process.find_running(files, ProcessRecord)
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    wait_for(lambda: "SIGKILL" in log.read_text())
    assert background_process.find_running(files, ProcessRecord) is None
    stopped = background_process.stop(files, ProcessRecord, "the program")
    assert stopped is not None and processes.is_gone(keeper_of(path))
    assert background_process.stop(files, ProcessRecord, "the program") is None


@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize(
    ("script", "facts"),
    [
        ("import sys; sys.exit('no room')", ["no room"]),
        ("import sys; sys.exit(5)", []),
        ("import time; print('p', flush=True); time.sleep(600)", ["0.5 s"]),
        ("import sys, time; sys.stderr.write('slow'); sys.stderr.flush(); time.sleep(600)",
         ["0.5 s", ": slow"]),
        ("import os, sys, time; os.close(int(sys.argv[1])); sys.stderr.write('b\xe4h'); sys.stderr.flush(); "
         "time.sleep(600)", ["0.5 s", ": b\xe4h"]),
    ],
    ids=["says why", "says nothing", "is not ready in time", "is late, and says why", "closes its line"],
)  # fmt: skip
def test_one_that_does_not_start(
    tmp_path: Path, script: str, facts: list[str], monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setattr(background_process, "_END_SECONDS", 0.3)
    noted = f"import os; os.write(1, b'%d ' % os.getpid()); {script}"
    found = start(program(noted), tmp_path / "log", seconds=0.5)
    assert found is not None and type(found) is RoostError
    assert found.where == tmp_path / "log" and all(fact in found.message for fact in ("the program", *facts))
    messages.check(found.message)
    pid = int((tmp_path / "log").read_text().split()[0])
    wait_for(lambda: processes.is_gone(pid))


@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize(
    ("error", "kind", "message", "where", "fix"),
    [
        ("Refused('is taken', setting='port', received=1, where=Path('a: (at b)'), fix='x; fix: y')",
         Refused, "port: is taken; received 1", "a: (at b)", "x; fix: y"),
        ("Refused('is taken')", Refused, "is taken", None, None),
        ("ConfigError('two\\nlines of \\udcff')",
         RoostError, "two\nlines of \udcff", None, None),
        ("OSError(28, 'No space left', '/full')",
         RoostError, "[Errno 28] No space left: '/full'", None, None),
        ("RoostError('x' * 10**6, fix='wait')", RoostError, "x" * 10**6, None, "wait"),
    ],
    ids=["refused", "refused without more", "wrong", "of the system", "long"],
)  # fmt: skip
def test_an_error_that_it_has_told_arrives_whole(
    tmp_path: Path,
    error: str,
    kind: type[RoostError],
    message: str,
    where: str | None,
    fix: str | None,
    messages: Messages,
) -> None:
    found, log = start(program(FAILS.format(error)), tmp_path / "log"), tmp_path / "log"
    assert found is not None and type(found) is kind
    if kind is Refused:
        assert (found.message, found.where, found.fix) == (message, where, fix)
    else:
        head, _, told = found.message.partition(": ")
        assert "the program" in head and told == message
        assert str(found.where) == str(where or log)
        if fix is None:
            messages.check(found.fix)
        else:
            assert found.fix == fix


def test_with_nobody_who_waits_an_error_is_for_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refused = Refused("is taken", fix="wait")
    with open(os.devnull, "wb") as null:  # as a keeper gives it to one that it has started anew
        for fd in (None, null.fileno()):
            assert background_process.Starter(fd).failed(refused) == Refused.exit_code
            assert capfd.readouterr().err == f"roost: {refused}\n"


@pytest.mark.usefixtures("descriptors")
def test_an_error_after_it_was_ready_is_for_the_log(tmp_path: Path) -> None:
    script = FAILS.format("RoostError('too late')").replace("sys.exit", "starter.ready(); sys.exit")
    assert start(program(script), tmp_path / "log") is None
    wait_for(lambda: (tmp_path / "log").read_text() == "roost: too late\n")


@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize(("times", "starts"), [(1, 2), (2, 2)])
def test_one_that_was_killed_is_started_once_more(tmp_path: Path, times: int, starts: int) -> None:
    found = start(program(KILLED, tmp_path / "count", times), tmp_path / "log")
    assert (tmp_path / "count").read_text() == "x" * starts
    assert found is None if times == 1 else "SIGKILL" in found.message


@pytest.mark.usefixtures("descriptors")
def test_a_log_or_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        start(program("print('x')"), tmp_path / "link")
    with pytest.raises(OSError, match="symbolic links"):
        background_process.lock(tmp_path / "link")
    assert (tmp_path / "other").read_text() == "mine"


def test_who_has_started_it_may_have_ended_before_it_is_ready(tmp_path: Path) -> None:
    script = "import sys; from roost.lab.background.background_process import Starter; Starter(int(sys.argv[1])).ready(); print('on')"  # noqa: E501
    read_fd, its_fd = os.pipe()
    os.close(read_fd)
    done = subprocess.run(program(script, its_fd), pass_fds=[its_fd], capture_output=True, text=True)
    os.close(its_fd)
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")


def test_the_lock_is_one_process_s_until_it_ends(tmp_path: Path) -> None:
    fd = background_process.lock(tmp_path / "lock")
    assert fd is not None and background_process.lock(tmp_path / "lock") is None
    os.close(fd)
    again = background_process.lock(tmp_path / "lock")
    assert again is not None
    os.close(again)


def test_another_process_of_the_same_number_is_not_it(tmp_path: Path) -> None:
    own, files = ProcessRecord.of_this_process(), ProcessFiles.of(tmp_path, "about")
    fd = background_process.lock(files.lock)
    assert fd is not None
    for other in ({"start_ticks": (own.start_ticks or 0) + 1}, {"boot_id": "another boot"}):
        background_process.write_record(files, msgspec.structs.replace(own, **other))
        assert background_process.find_running(files, ProcessRecord) is None
    background_process.write_record(files, own)
    assert background_process.find_running(files, ProcessRecord) == own
    os.close(fd)
    assert background_process.find_running(files, ProcessRecord) is None, "it has not the lock"


@pytest.mark.usefixtures("descriptors")
def test_a_copied_folder_names_processes_of_the_original_which_are_left_alone(tmp_path: Path) -> None:
    files, copy = ProcessFiles.of(tmp_path / "one", "about"), ProcessFiles.of(tmp_path / "two", "about")
    (tmp_path / "one").mkdir()
    assert start(program(LASTS, tmp_path / "one"), files.log) is None
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert background_process.find_running(copy, ProcessRecord) is None
    assert background_process.stop(copy, ProcessRecord, "the program") is None
    background_process.write_record(copy, ProcessRecord.of_this_process())
    found = background_process.stop(files, ProcessRecord, "the program")
    assert found is not None and not found.is_alive


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"pid": 1}', b'{"pid": "x"}', b"\xff", b'{"a":' * 10**5, b"[" * 10**5]
)
def test_a_damaged_file_tells_of_nobody(tmp_path: Path, content: bytes) -> None:
    files = ProcessFiles.of(tmp_path, "about")
    assert background_process.find_running(files, ProcessRecord) is None
    files.record.write_bytes(content)
    assert background_process.find_running(files, ProcessRecord) is None


def test_who_would_start_the_one_before_us_anew_is_ended(tmp_path: Path) -> None:
    files = ProcessFiles.of(tmp_path, "about")
    with files.log.open("w") as log, subprocess.Popen(["sleep", "600"], stdout=log) as before:
        ticks, boot_id = process_identity.start_ticks(before.pid), process_identity.boot_id()
        keeper = {"pid": before.pid, "start_ticks": ticks, "boot_id": boot_id}
        files.record.write_bytes(msgspec.json.encode({"keeper": keeper}))
        background_process.write_record(files, ProcessRecord.of_this_process())
        assert before.wait() == -signal.SIGTERM
