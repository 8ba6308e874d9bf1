"""The limits of a session, by real sessions with small ones."""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from roost.base.system import process_identity
from roost.package.session_schema import SessionRecord
from roost.supervisor.limits import SessionLimits
from roost.supervisor.monitoring import system_watch
from roost.supervisor.output import output_cap
from roost.supervisor.rank_processes import RankProcess, RankProcesses
from roost.supervisor.session_record import SessionRecordFile
from roost.supervisor.session_watch import SessionWatch
from roost.supervisor.worker_process import WorkerProcess
from tests.messages import Messages
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")

SRC = str(Path(output_cap.__file__).parents[3])
SAVES = """
def save(*_): here("saved"); end("stopped", 75, "signal"); sys.exit(75)
signal.signal(signal.SIGTERM, save)
"""
DEAF = "signal.signal(signal.SIGTERM, lambda *_: here('asked'))\ndaemons(2)\n"
HANGS = f"""
sys.path.insert(0, {SRC!r})
from roost.worker import worker_signals as stacks
stacks.register_stack_dump()
def waits_for_ever(name="ready"):
    here(name)
    forever()
"""


def test_the_time_limit_asks_to_save(session: Session) -> None:
    assert session.start_limited(SAVES + "forever()", wall_seconds=0.5).wait(100) == 75
    record = session.record()
    assert (session.folder / "saved").exists()
    assert (record["state"], record["exit_code"], record["reason"]) == ("stopped", 75, "time limit")
    assert record["error"] is None
    assert record["seconds"] >= 0.5


def test_a_time_in_a_file_asks_a_program_its_grace_before(session: Session) -> None:
    """The file appears while it runs. The record has the time, also after it was withdrawn."""
    path = session.folder / "end"
    code = SAVES + "here('ready')\nforever()"
    spec = session.spec(code, ROOST_DEADLINE_FILE=str(path))
    limits = SessionLimits(grace_seconds=3000.0)
    child = session.start_spec(spec._replace(limits=limits, is_command=True))
    session.wait_until("ready")
    assert session.record().get("deadline") is None
    far = time.time() + 9000
    path.write_text(str(far))
    wait_for(lambda: session.record().get("deadline") == pytest.approx(far))
    path.unlink()
    wait_for(lambda: session.record().get("deadline") is None)
    path.write_text(str(time.time() + 4))
    assert child.wait(100) == 75
    record = session.record()
    assert (record["state"], record["reason"]) == ("stopped", "time limit")
    assert (session.folder / "saved").exists()
    assert record["deadline"] == pytest.approx(float(path.read_text()))
    assert session.output.read_text().count("no time any more") == 1
    assert session.output.read_text().count(f"as {path} says") == 2


def test_who_overstays_the_grace_is_killed(session: Session, messages: Messages) -> None:
    child = session.start_limited(DEAF + "forever()", wall_seconds=2.0, grace_seconds=0.3)
    assert child.wait(100) == 75
    record = session.record()
    assert (session.folder / "asked").exists()
    assert (record["state"], record["reason"]) == ("stopped", "time limit")
    assert "0.3 s" in record["error"]
    messages.check(record["error"])
    assert session.living() == []


def test_who_ends_before_the_limit_never_hears_of_it(session: Session) -> None:
    assert session.start_limited("end('succeeded', 0)", wall_seconds=60.0).wait(100) == 0


def test_without_a_limit_a_save_takes_as_long_as_it_takes(session: Session) -> None:
    """The grace is that of a limit, not that of a person who asks."""
    code = "signal.signal(signal.SIGTERM, lambda *_: here('asked'))\nhere('ready')\n" + (
        "while not os.path.exists('go'): time.sleep(0.002)\nend('stopped', 75)"
    )
    child = session.start_limited(code, grace_seconds=0.0)
    session.wait_until("ready")
    child.terminate()
    session.wait_until("asked")
    (session.folder / "go").touch()
    assert child.wait(100) == 75


def stalling(session: Session, code: str, **limits: object) -> Path:
    stacks = session.folder / "stalls.txt"
    spec = session.spec(code)._replace(limits=SessionLimits(**limits), stacks=str(stacks))  # type: ignore[arg-type]
    session.start_spec(spec)
    return stacks


def test_the_stacks_of_a_stalled_run_are_written_and_it_continues(session: Session) -> None:
    code = HANGS + SAVES + "if os.fork() == 0: waits_for_ever('child')\ndaemon('other')\nwaits_for_ever()"
    stacks = stalling(session, code, stall_seconds=0.6)
    wait_for(lambda: session.file.exists() and "stalls" in session.record())
    (stall,) = session.record()["stalls"]
    assert stall["processes"] == 3
    assert stall["stacks"] == "stalls.txt"
    assert stall["idle_seconds"] >= 0.6
    assert not stall["stopped"]
    text = stacks.read_text()
    assert text.count("in waits_for_ever") == 2
    assert sum('File "' not in part for part in text.split("\n--- ")[1:]) == 1, (
        "the daemon runs another program"
    )
    line = "stalls.txt"
    wait_for(lambda: line in session.output.read_text())
    assert process_identity.is_alive(
        session.supervisor_pid, session.record()["start_ticks"], process_identity.boot_id()
    )
    os.kill(session.supervisor_pid, signal.SIGTERM)
    assert session.child is not None
    assert session.child.wait(100) == 75
    assert session.output.read_text().count(line) == 1
    assert session.record()["reason"] == "signal"


@pytest.mark.parametrize("worker", [SAVES, DEAF])
def test_a_hung_run_is_ended_if_so_set(session: Session, worker: str) -> None:
    grace = 0.3 if worker == DEAF else 100.0
    limits = {"stall_seconds": 0.3, "end_stalled": True, "grace_seconds": grace}
    stacks = stalling(session, HANGS + worker + "waits_for_ever()", **limits)
    assert session.child is not None
    assert session.child.wait(100) == 1
    record = session.record()
    assert (record["state"], record["reason"]) == ("failed", "stalled")
    assert re.search(r"\b\d+(\.\d+)? s\b", record["error"])
    assert "stalls.txt" in record["error"]
    assert (record["worker_status"] == "SIGKILL") == (worker == DEAF)
    assert "in waits_for_ever" in stacks.read_text()
    assert session.living() == []


def test_a_paused_run_is_named_and_not_killed(session: Session) -> None:
    stalling(
        session, HANGS + "here('ready'); os.kill(os.getpid(), signal.SIGSTOP); forever()", stall_seconds=0.3
    )
    wait_for(lambda: session.file.exists() and "stalls" in session.record())
    assert session.record()["stalls"][0]["stopped"]
    wait_for(lambda: "stalls.txt" in session.output.read_text())
    assert session.child is not None
    assert session.child.poll() is None
    session.child.send_signal(signal.SIGQUIT)
    assert session.child.wait(100) == 130


@contextmanager
def watching(session: Session, **changes: Any) -> Iterator[tuple[SessionWatch, SessionRecordFile]]:
    """The clock of a session whose output may grow to 1 MB, in this process."""
    with open(session.output, "ab") as output:
        record = SessionRecordFile(str(session.file), SessionRecord.from_json({}))
        spec = session.spec("")._replace(limits=SessionLimits(output_bytes=2**20), **changes)
        team = RankProcesses(spec)
        team.ranks.append(RankProcess(0, WorkerProcess(os.getpid(), -1, -1), output.fileno()))
        yield SessionWatch(spec, record, team), record


def test_the_memory_of_all_its_processes_is_recorded(session: Session) -> None:
    argv = [sys.executable, "-I", "-S", "-c", "import os, signal; os.write(1, b'1'); signal.pause()"]
    with watching(session) as (watch, record), subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        assert watch.tick(watch.next_tick) is None
        child.kill()
        watch.finish()
    assert (record.fields.peak_tree_memory_mb or 0) > 1


@pytest.mark.parametrize("broken", ["tick", "finish"])
def test_a_measurement_that_fails_does_not_end_the_session(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a field of /proc has another form")

    monkeypatch.setattr(system_watch.SystemWatch, broken, fail)
    system, samples = str(tmp_path / "system" / "1.jsonl"), str(tmp_path / "samples")
    with watching(session, system=system, samples=samples) as (watch, record):
        later = watch.next_tick + 2
        assert watch.tick(later) is None and watch.tick(later + 2) is None
        watch.finish()
        assert watch.spared_pids == []
    assert record.fields.system is not None and "another form" in (record.fields.system.trouble or "")


def test_output_that_grows_at_once_is_looked_at_at_once(session: Session) -> None:
    with watching(session) as (watch, _):
        assert watch.tick(began := watch.next_tick) is None
        assert watch.growth_fds == [], "most runs that end at once are looked at once"
        assert began < watch.next_tick < began + 0.1
        assert watch.tick(began := watch.next_tick) is None
        assert watch.next_tick == began + 1, "nothing was printed: it may sleep"
        with open(session.output, "ab", buffering=0) as run:
            run.write(bytes(2**23))
            wait_for(lambda: select.select(watch.growth_fds, [], [], 0)[0])
            watch.note_growth(*watch.growth_fds)
            assert watch.tick(began + 0.01) is None
            assert session.output.stat().st_blocks * 512 < 1.5 * 2**20
            assert watch.next_tick < began + 0.1
            assert watch.tick(watch.next_tick) is None
            assert watch.next_tick > began + 1, "and sleeps again"


def test_a_disk_without_holes_is_reported_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, start: int, end: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(output_cap, "punch_hole", refuse)
    session.output.write_bytes(bytes(2**22))
    with watching(session) as (watch, record):
        for _ in range(3):
            assert watch.tick(watch.next_tick) is None
        assert watch.tick(watch.next_tick - 0.001) is None
        assert watch.growth_fds == []
    assert "not supported" in (record.fields.output_not_cut or "")
    assert session.output.read_bytes().count(b"limits.output_mb") == 1


TAKES = """
import mmap
kept = []
def take(mb, kind=mmap.MAP_PRIVATE):
    kept.append(mmap.mmap(-1, mb << 20, kind))
    for page in range(0, mb << 20, mmap.PAGESIZE): kept[-1][page] = 1
"""


def test_who_takes_more_of_the_host_than_requested_is_killed(session: Session, messages: Messages) -> None:
    """All processes together: a child has most of it. None is asked to save, which takes memory too."""
    code = f"{DEAF}{TAKES}take(40)\nif os.fork() == 0: take(80)\nforever()"
    child = session.start_limited(code, host_memory_mb=100, grace_seconds=60.0)
    assert child.wait(100) == 1
    record = session.record()
    assert (record["state"], record["exit_code"], record["reason"]) == ("failed", 1, "oom_host")
    took, advised = (
        int(one) for pair in re.findall(r"took (\d+)|memory (\d+)MB", record["error"]) for one in pair if one
    )
    assert "100 MB" in record["error"] and advised > 1.4 * took
    messages.check(re.sub(r"took .* MB|\d+MB", "<measured>", record["error"]))
    assert record["error"] in session.output.read_text()
    assert record["peak_tree_memory_mb"] > 100 and not (session.folder / "asked").exists()


def test_pages_that_processes_share_count_once_for_the_limit(session: Session) -> None:
    """Three processes share 60 MB after a fork: 180 MB by the sum of their resident sets."""
    code = f"{TAKES}take(60)\nfor _ in range(2):\n    if os.fork() == 0: forever()\n"
    code += "import time; time.sleep(3); end('succeeded', 0, 'done')"
    assert session.start_limited(code, host_memory_mb=130).wait(100) == 0
    record = session.record()
    assert record["state"] == "succeeded" and record["peak_tree_memory_mb"] > 130
