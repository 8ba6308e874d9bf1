"""Real sessions that measure their cards, processes and host; one of them samples the machine."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.base.system import process_identity
from roost.devices.sampling import sample_ring
from roost.package.results import system_metrics
from roost.package.results.system_metrics import SystemColumns
from roost.supervisor.session_spec import SessionSpec
from tests.devices.sampling import rings
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

LOADS = {
    "cards": "2x24GB:H100",
    "loads": [{"card": "SIM-0", "utilization": 90, "power": 360.0, "temperature": 61}],
    "processes": [{"card": "SIM-0", "pid": 1, "memory": "10GB"}],
}
BUSY = (
    "data = b'x' * (50 << 20)\n"
    "while not os.path.exists('go'): sum(range(10**5)), time.sleep(0.004)\n"
    "end('succeeded', 0)"
)
IDLE = "here('ready')\nwhile not os.path.exists('go'): time.sleep(0.01)\nend('succeeded', 0)"
LONG = 100.0


class Machine:
    """Sessions that share one folder of samples and two simulated cards."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.samples = folder, rings.shared_folder(folder)
        (folder / "scenario.json").write_text(json.dumps(LOADS))
        self.devices = f"sim:{folder / 'scenario.json'}"
        self.sessions: list[Session] = []

    def start(self, code: str, cards: tuple[str, ...] = ("SIM-0",), **env: str) -> Session:
        folder = self.folder / f"session{len(self.sessions)}"
        folder.mkdir()
        session = Session(folder)
        self.sessions.append(session)
        session.start_spec(self.spec(session, code, cards, **env))
        return session

    def spec(self, session: Session, code: str, cards: tuple[str, ...], **env: str) -> SessionSpec:
        spec = session.spec(code, ROOST_DEVICES=self.devices, **env)
        return spec._replace(system=str(file_of(session)), samples=str(self.samples), card_ids=cards)

    def sampler(self) -> int:
        """The process that samples now; 0: none."""
        ring = sample_ring.newest_ring(str(self.samples), is_fresh=True)
        if ring is None:
            return 0
        ring.close()
        return ring.header.pid


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    for session in made.sessions:
        session.close()


def file_of(session: Session) -> Path:
    return session.folder / "system" / "1.jsonl"


def measured(session: Session) -> SystemColumns | None:
    return system_metrics.read_file(file_of(session))


def ended(session: Session) -> dict[str, Any]:
    (session.folder / "go").touch()
    assert session.child is not None and session.child.wait(LONG) == 0
    return session.record()


def wait_for_values(session: Session, name: str, count: int = 2) -> SystemColumns:
    def found() -> SystemColumns | None:
        columns = measured(session)
        values = [] if columns is None else columns.values.get(name, [])
        return columns if sum(value is not None for value in values) >= count else None

    columns = wait_for(found, LONG)
    assert columns is not None
    return columns


def test_a_session_measures_its_card_its_processes_and_the_host(machine: Machine) -> None:
    session = machine.start(BUSY, ROOST_PRICE_PER_KWH="0.3 EUR")
    columns = wait_for_values(session, "gpu0/power")
    assert {"gpu0/utilization", "session/cores", "session/memory_mb", "host/cpu"} <= {*columns.names}
    record = ended(session)
    use = record["system"]
    (card,) = use["cards"]
    assert (card["id"], card["name"], card["total_mb"]) == ("SIM-0", "H100", 24 * 1024)
    assert (card["utilization"], card["power"], card["peak_memory_mb"]) == (90, 360, 10 * 1024)
    watts_seconds = use["energy_kwh"] * 3.6e6
    assert 360 * 1 < watts_seconds <= 360 * record["seconds"] * 1.05, "no more than the session took"
    assert use["cost"] == pytest.approx(0.3 * use["energy_kwh"], abs=2e-6) and use["currency"] == "EUR"
    assert 0.2 < use["cpu_seconds"] < record["seconds"] * 1.2, "one process computed, if it got a core"
    assert use["host"]["cores"] == os.cpu_count() and use["host"]["cpu"] > 0
    final = measured(session)
    assert final is not None
    assert max(value or 0 for value in final.values["session/memory_mb"]) > 50
    assert sum(final.seconds) == pytest.approx(record["seconds"], abs=1.0)
    assert final.times[-1] == pytest.approx(record["ended"], abs=2.0)


def test_a_session_that_ends_at_once_writes_no_file(machine: Machine) -> None:
    session = machine.start("end('succeeded', 0)")
    assert session.child is not None and session.child.wait(LONG) == 0
    assert "system" not in session.record() and not file_of(session).exists()


def test_one_process_samples_for_all_and_another_takes_over_when_it_is_killed(machine: Machine) -> None:
    sessions = [machine.start(IDLE) for _ in range(3)]
    for session in sessions:
        wait_for_values(session, "gpu0/power")
    pids = {session.supervisor_pid: session for session in sessions}
    first = machine.sampler()
    killed = pids.pop(first)
    began = time.monotonic()
    os.kill(first, signal.SIGKILL)
    second = wait_for(lambda: pid if (pid := machine.sampler()) in pids else 0, LONG)
    assert time.monotonic() - began < 20, "within seconds, on a machine that is busy"
    assert killed.child is not None and killed.child.wait(LONG) == 1
    kept = measured(killed)
    assert kept is not None, "a killed supervisor loses some seconds only"
    other = next(session for pid, session in pids.items() if pid != second)
    count = len([1 for value in wait_for_values(other, "host/cpu").values["host/cpu"] if value is not None])
    wait_for_values(other, "host/cpu", count + 5)
    for session in pids.values():
        assert ended(session)["state"] == "succeeded"


def test_the_process_that_asks_the_cards_is_no_part_of_the_session(machine: Machine) -> None:
    """It takes tens of MB, and ends with the session that started it."""
    session = machine.start(IDLE)
    columns = wait_for_values(session, "gpu0/power", 3)
    assert {value for value in columns.values["session/processes"] if value is not None} == {1}
    asking = [pid for pid in children_of(session.supervisor_pid) if is_asker(pid)]
    assert len(asking) == 1
    record = ended(session)
    assert record["peak_tree_memory_mb"] < 40 and record["system"]["cpu_seconds"] < 2
    assert not any(process_identity.start_ticks(pid) is not None and is_asker(pid) for pid in asking)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_asker(pid: int) -> bool:
    return b"card_process" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_driver_that_hangs_delays_nothing_and_is_named(machine: Machine) -> None:
    """Stopped by a signal, the process hangs as with a driver."""
    session = machine.start(IDLE)
    wait_for_values(session, "gpu0/power")
    (asking,) = (pid for pid in children_of(session.supervisor_pid) if is_asker(pid))
    os.kill(asking, signal.SIGSTOP)

    def gap() -> bool:
        columns = measured(session)
        assert columns is not None
        last = [columns.values[name][-1] for name in ("gpu0/power", "host/cpu")]
        return last[0] is None and last[1] is not None

    wait_for(gap, LONG)
    began = time.monotonic()
    record = ended(session)
    assert time.monotonic() - began < 10 and record["state"] == "succeeded"
    columns = measured(session)
    assert columns is not None and columns.gaps[-1].reason in sample_ring.STATES[1:]
    assert process_identity.start_ticks(asking) is None or not is_asker(asking)


def test_a_folder_of_samples_that_cannot_be_used_is_a_gap_with_its_reason(machine: Machine) -> None:
    shutil.rmtree(machine.samples)
    session = machine.start(IDLE)
    wait_for_values(session, "session/memory_mb", 4)
    record = ended(session)
    columns = measured(session)
    assert columns is not None and "host/cpu" not in columns.names
    assert sample_ring.NO_SAMPLE in columns.gaps[-1].reason
    assert os.strerror(errno.ENOENT) in columns.gaps[-1].reason and record["state"] == "succeeded"


def test_a_package_whose_folder_cannot_be_made_runs_without_it(machine: Machine) -> None:
    folder = machine.folder / "own"
    folder.mkdir()
    session = Session(folder)
    machine.sessions.append(session)
    (folder / "system").write_text("a file of the project")
    session.start_spec(machine.spec(session, f"time.sleep(2.5)\n{IDLE}", ()))
    session.wait_until("ready", timeout_seconds=LONG)
    record = ended(session)
    assert record["state"] == "succeeded" and "not measured" in record["system"]["trouble"]
    assert (folder / "system").read_text() == "a file of the project"


def test_another_process_that_keeps_the_lock_stops_no_samples_for_long(machine: Machine) -> None:
    """As a user could do to the others."""
    import fcntl

    fd = os.open(machine.samples, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        session = machine.start(IDLE)
        wait_for_values(session, "host/cpu")
        assert machine.sampler() == session.supervisor_pid
        assert ended(session)["state"] == "succeeded"
    finally:
        os.close(fd)


def test_a_change_of_the_clock_moves_no_row(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    from roost.supervisor.monitoring import memory_peak, system_watch
    from roost.supervisor.monitoring.system_watch import SystemWatch

    folder = machine.folder / "own"
    folder.mkdir()
    spec = machine.spec(Session(folder), "", ())
    now = time.monotonic()
    watch = SystemWatch(spec, started=now, start_use=memory_peak.start_use(now))
    real = time.time
    for second in range(1, 20):
        if second == 10:
            monkeypatch.setattr(system_watch.time, "time", lambda: real() - 86_400)
        watch.tick(now + second, None)
    watch.finish(now + 20, None)
    found = system_metrics.read_file(Path(spec.system))
    assert found is not None and len(found.times) == 20
    steps = [after - before for before, after in zip(found.times, found.times[1:], strict=False)]
    assert steps == pytest.approx([1.0] * 19, abs=0.01)
