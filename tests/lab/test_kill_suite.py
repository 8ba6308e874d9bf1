"""However a session ends, nothing survives: not even what is hardest to kill (`kill_program`).

Survivors are found in two ways that have nothing to do with how they were ended: by the folder they live in,
and by a FIFO whose end all of them hold.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from roost.base.system import prctl
from roost.supervisor.processes import cgroup
from roost.supervisor.processes.abandoned_processes import kill_abandoned
from roost.supervisor.session_spec import SessionSpec
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")

PROGRAM = Path(__file__).with_name("kill_program.py")
LOADER = """
import os, torch
told, tells = os.pipe()
class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        os.write(tells, b"1")
        while True: yield torch.zeros(1)
def main():
    batches = iter(torch.utils.data.DataLoader(Endless(), num_workers=2))
    for _ in range(2): os.read(told, 1)
    open("ready", "w").close()
    while True: next(batches)
os.set_inheritable(os.open("held", os.O_WRONLY), True)
main()
"""


def worker_ends(session: Session) -> None:
    (session.folder / "go").touch()


def worker_killed(session: Session) -> None:
    os.kill(session.record()["worker_pid"], signal.SIGKILL)


def told_to_kill(session: Session) -> None:
    os.kill(session.supervisor_pid, signal.SIGQUIT)


def supervisor_killed(session: Session) -> None:
    os.kill(session.supervisor_pid, signal.SIGKILL)


def guard_killed(session: Session) -> None:
    """The run goes on, and is then ended by its supervisor alone."""
    assert session.child is not None
    session.child.kill()
    session.child.wait(100)
    wait_for(lambda: "guard_lost" in session.record())
    assert session.locked()
    os.kill(session.supervisor_pid, signal.SIGQUIT)


def both_killed(session: Session) -> None:
    """Both are stopped first, so that neither acts at the death of the other. A new session then sweeps."""
    with adopting():
        _kill_both(session)


def _kill_both(session: Session) -> None:
    assert session.child is not None
    record = session.record()
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        session.child.send_signal(signum)
        os.kill(session.supervisor_pid, signum)
    session.child.wait(100)
    kill_abandoned([session.token], [record["cgroup"]] if record["cgroup"] else [])
    if not record["cgroup"]:
        # Nothing tells whose this one is: only a cgroup would.
        nameless = [int(path.read_text()) for path in session.folder.glob("nameless")]
        assert session.living() == nameless
        for pid in nameless:
            os.kill(pid, signal.SIGKILL)


@contextmanager
def adopting() -> Iterator[None]:
    """Has this process adopt what loses its parents, and reap it: not every machine's first process does."""
    prctl.set_child_subreaper(True)
    try:
        yield
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
    finally:
        prctl.set_child_subreaper(False)


SCENARIOS: dict[Callable[[Session], None], tuple[str, str] | None] = {
    worker_ends: ("crashed", "exit"),
    worker_killed: ("crashed", "signal"),
    told_to_kill: ("stopped", "killed"),
    supervisor_killed: ("crashed", "supervisor"),
    guard_killed: ("stopped", "killed"),
    both_killed: None,
}
KINDS = [pytest.param("cgroup", marks=pytest.mark.needs_cgroup), "walk"]
ROUNDS, SOAK_ROUNDS = 1, 84
"""Of each scenario: 6 and 504 with a cgroup, and as many without."""


@contextmanager
def held(folder: Path) -> Iterator[int]:
    os.mkfifo(folder / "held")
    fd = os.open(folder / "held", os.O_RDONLY | os.O_NONBLOCK)
    yield fd
    os.close(fd)


def all_gone(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return any(event & select.POLLHUP for _, event in poller.poll(0))


def spec_of(session: Session, kind: str) -> SessionSpec:
    spec = session.spec("")._replace(argv=[sys.executable, "-I", "-S", str(PROGRAM)], cgroup=kind == "cgroup")
    group = cgroup.cgroup_path(spec.token) if kind == "cgroup" else None
    return spec._replace(env=spec.env | ({"LEAVE_GROUP": group} if group else {}))


def round_of(
    session: Session, spec: SessionSpec, kill: Callable[[Session], None], *, num_living: int
) -> None:
    """One run with everything below it, killed in one way: then all are gone, and the record says how."""
    with held(session.folder) as fd:
        session.start_spec(spec)
        session.wait_until("ready")  # torch loads itself
        assert len(session.living()) >= num_living
        assert not all_gone(fd)
        kill(session)
        wait_for(lambda: not session.locked())
        survivors = session.living()
        assert survivors == []
        wait_for(lambda: all_gone(fd), timeout_seconds=1)
    record, expected = session.record(), SCENARIOS[kill]
    assert expected is None or (record["state"], record["reason"]) == expected
    group = record["cgroup"]
    assert (group is not None) == spec.cgroup
    assert group is None or not Path(group).exists()


def rounds(folder: Path, kill: Callable[[Session], None], kind: str, number: int) -> None:
    for i in range(number):
        (folder / str(i)).mkdir()
        session = Session(folder / str(i))
        try:
            round_of(session, spec_of(session, kind), kill, num_living=20)
        finally:
            session.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kill", SCENARIOS)
def test_nothing_survives(tmp_path: Path, kill: Callable[[Session], None], kind: str) -> None:
    rounds(tmp_path, kill, kind, ROUNDS)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kill", SCENARIOS)
def test_nothing_survives_many_times(tmp_path: Path, kill: Callable[[Session], None], kind: str) -> None:
    rounds(tmp_path, kill, kind, SOAK_ROUNDS)


@pytest.mark.parametrize("kill", [kill for kill in SCENARIOS if kill is not worker_ends])
def test_loader_workers(session: Session, kill: Callable[[Session], None]) -> None:
    """Without a cgroup alone: it ends whatever is in it, as `test_nothing_survives` shows of worse ones."""
    round_of(session, session.spec("")._replace(argv=[sys.executable, "-c", LOADER]), kill, num_living=3)
