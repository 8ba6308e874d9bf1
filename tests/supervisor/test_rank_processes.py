"""Several ranks under one supervisor: real, small workers that end in every way, and what is said of it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from roost.base.system import process_identity
from roost.supervisor import rendezvous
from roost.supervisor.limits import SessionLimits
from roost.supervisor.session_spec import SessionSpec
from tests.messages import Messages
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")

RANKS = """
rank = int(os.environ["RANK"])
def met(name):
    while not all(os.path.exists(f"{name}{other}") for other in range(3)): time.sleep(0.002)
def meet(name):
    here(f"{name}{rank}", os.getpid()); met(name)
def save(*_): end("stopped", 75, "signal"); sys.exit(75)
signal.signal(signal.SIGTERM, save)
"""
PEER = "end('failed', 1, 'peer', 'another rank is gone'); sys.exit(1)"
DEAF = "signal.signal(signal.SIGTERM, lambda *_: here('asked')); forever()"


def several(session: Session, code: str, *, seconds: float = 0.2, **spec: Any) -> SessionSpec:
    own = ({"OWN": "a"}, {"OWN": "b"}, {"OWN": "c"})
    made = session.spec(RANKS + code)._replace(ranks=own, limits=SessionLimits(peer_seconds=seconds))
    return made._replace(**spec)


def end_of(session: Session, code: str, *, seconds: float = 0.2) -> dict[str, Any]:
    record = session.end_spec(several(session, code, seconds=seconds))
    assert session.living() == []
    assert not Path(rendezvous.rendezvous_folder(session.token)).exists()
    return record


def said_of(session: Session) -> list[str]:
    return [line for line in session.output.read_text().splitlines() if line.startswith("roost: ")]


def test_what_each_rank_finds(session: Session) -> None:
    code = """
folder = os.path.dirname(os.environ["ROOST_MEETING"])
print(json.dumps([dict(os.environ), oct(os.stat(folder).st_mode & 0o777)]))
end("succeeded", 0)
"""
    record = end_of(session, code)
    outputs = [session.output, *(session.folder / f"_output_{rank}.txt" for rank in (1, 2))]
    found = [json.loads(output.read_text()) for output in outputs]
    for rank, (env, mode) in enumerate(found):
        assert (env["RANK"], env["LOCAL_RANK"], env["OWN"]) == (str(rank), str(rank), "abc"[rank])
        assert (env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"], env["MASTER_ADDR"]) == ("3", "3", "127.0.0.1")
        assert mode == "0o700"
    assert len({(env["MASTER_PORT"], env["ROOST_MEETING"], env["ROOST_TOKEN"]) for env, _ in found}) == 1
    assert found[0][0]["ROOST_MEETING"].startswith("/tmp/")
    assert (record["state"], record["worker_status"]) == ("succeeded", 0)
    assert [(one["rank"], one["status"], one["state"]) for one in record["ranks"]] == [
        (rank, 0, "succeeded") for rank in range(3)
    ]
    assert record["ranks"][0]["pid"] == record["worker_pid"]


@pytest.mark.parametrize(
    ("failing", "cause"),
    [
        (
            "end('failed', 1, 'exception', 'ValueError: x'); sys.exit(1)",
            ("failed", 1, "exception", ["ValueError: x"]),
        ),
        (
            "end('failed', 4, 'error', 'no'); sys.exit(4)",
            ("failed", 4, "error", ["no"]),
        ),
        (
            "os.kill(os.getpid(), 11)",
            ("crashed", 1, "signal", ["SIGSEGV"]),
        ),
        ("os._exit(3)", ("crashed", 3, "exit", ["3"])),
    ],
)
def test_the_first_cause_is_said_once(
    session: Session, failing: str, cause: tuple[str, int, str, list[str]], messages: Messages
) -> None:
    """Rank 0 sees at once that another is gone, rank 2 hangs: neither is the cause."""
    code = f"meet('up')\nif rank == 1: here('x'); {failing}"
    code += f"\nif rank == 0:\n    while not os.path.exists('x'): time.sleep(0.002)\n    {PEER}\n{DEAF}"
    record = end_of(session, code, seconds=1.0)
    state, exit_code, reason, facts = cause
    assert (record["state"], record["exit_code"], record["reason"]) == (state, exit_code, reason)
    assert all(fact in record["error"] for fact in ("rank 1", "_output_1.txt", *facts))
    messages.check(record["error"])
    assert said_of(session) == [f"roost: {record['error']}"]
    assert [one["status"] for one in record["ranks"]][2] == "SIGKILL"


def test_a_stall_that_ends_them_is_said_once(session: Session) -> None:
    limits = SessionLimits(peer_seconds=0.2, stall_seconds=0.3, end_stalled=True, grace_seconds=0.3)
    record = session.end_spec(several(session, "forever()", limits=limits))
    assert (record["state"], record["reason"]) == ("failed", "stalled")
    assert said_of(session) == [f"roost: {record['error']}"]


def test_a_peer_s_word_waits_for_the_cause(session: Session) -> None:
    """Rank 0 falls first, and only then the one that made it fall is found dead."""
    code = f"""
meet('up')
if rank == 0: here('reported'); {PEER}
if rank == 1:
    while os.path.exists(f"/proc/{{open('up0').read()}}/fd/1"): time.sleep(0.002)
    os._exit(9)
forever()
"""
    record = end_of(session, code, seconds=1.0)
    assert all(fact in record["error"] for fact in ("rank 1", "9", "_output_1.txt"))


def test_a_peer_s_word_is_the_cause_where_there_is_no_other(session: Session) -> None:
    record = end_of(session, f"meet('up')\nif rank == 2: {PEER}\n{DEAF}")
    assert record["error"] == "another rank is gone" and said_of(session) == ["roost: another rank is gone"]


def test_an_error_of_all_ranks_is_reported_by_rank_0(session: Session) -> None:
    """Whichever rank was first."""
    code = """
meet('up')
while rank == 0 and not all(os.path.exists(f"ended{other}") for other in (1, 2)): time.sleep(0.002)
end('failed', 1, 'exception', 'ValueError: x'); here(f"ended{rank}"); sys.exit(1)
"""
    record = end_of(session, code, seconds=5.0)
    assert record["error"] == "ValueError: x" and said_of(session) == []


def test_the_error_of_rank_0_is_not_said_again(session: Session) -> None:
    code = "print('ValueError: x')\nif rank == 0: end('failed', 1, 'exception', 'ValueError: x'); sys.exit(1)"
    record = end_of(session, f"{code}\nforever()")
    assert (record["state"], record["error"]) == ("failed", "ValueError: x")
    assert session.output.read_text() == "ValueError: x\n"


def test_one_that_crashes_where_the_others_have_succeeded(session: Session, messages: Messages) -> None:
    code = "if rank == 2: os.abort()\nend('succeeded', 0)"
    record = end_of(session, code)
    assert record["state"] == "crashed"
    assert all(fact in record["error"] for fact in ("rank 2", "SIGABRT", "_output_2.txt"))
    messages.check(record["error"])


def test_the_output_of_rank_0_is_not_named_in_itself(session: Session, messages: Messages) -> None:
    record = end_of(session, "if rank == 0: os._exit(3)\nforever()")
    assert "rank 0" in record["error"] and "3" in record["error"] and "_output" not in record["error"]
    messages.check(record["error"])


def test_orders_go_to_all_and_rank_0_may_write_as_long_as_it_takes(session: Session) -> None:
    """The others have ended long ago; the seconds are those of failures."""
    code = """
def slow(*_):
    here('writing')
    while not os.path.exists('go'): time.sleep(0.002)
    save()
if rank == 0: signal.signal(signal.SIGTERM, slow)
meet('up'); forever()
"""
    child = session.start_spec(several(session, code, seconds=0.0))
    for name in ("up0", "up1", "up2"):
        session.wait_until(name)
    child.terminate()
    session.wait_until("writing")
    pids = [one["pid"] for one in session.record()["ranks"]]
    wait_for(lambda: all((stat := process_identity.read_stat(pid)) is None or stat.ended for pid in pids[1:]))
    (session.folder / "go").touch()
    assert child.wait(100) == 75
    record = session.record()
    assert (record["state"], record["error"]) == ("stopped", None)
    assert said_of(session) == []


def test_asked_while_one_of_them_was_still_loading(session: Session) -> None:
    """It dies of the signal; another, which waits for it, must not wait for ever."""
    code = "if rank == 1: signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
    code += f"meet('up')\nif rank == 1: forever()\n{DEAF}"
    child = session.start_spec(several(session, code))
    for name in ("up0", "up1", "up2"):
        session.wait_until(name)
    child.terminate()
    assert child.wait(100) == 75
    assert (session.record()["state"], session.record()["reason"]) == ("stopped", "signal")
    assert session.living() == []


def test_killed_together(session: Session) -> None:
    child = session.start_spec(several(session, f"meet('up')\n{DEAF}"))
    session.wait_until("up2")
    child.send_signal(signal.SIGQUIT)
    assert child.wait(100) == 130
    assert session.record()["reason"] == "killed"
    assert session.living() == []


def test_the_guard_ends_the_ranks_of_a_killed_supervisor(session: Session) -> None:
    child = session.start_spec(several(session, f"meet('up')\n{DEAF}"))
    session.wait_until("up2")
    os.kill(session.supervisor_pid, signal.SIGKILL)
    assert child.wait(100) == 1
    assert session.living() == []
    assert not Path(rendezvous.rendezvous_folder(session.token)).exists()


def test_the_output_of_every_rank_is_kept_small(session: Session) -> None:
    limits = SessionLimits(output_bytes=2**20)
    code = "os.write(1, b'0123456789abcde\\n' * 2**17); end('succeeded', 0)"
    session.end_spec(several(session, code, limits=limits))
    sizes = [path.stat().st_size for path in session.folder.glob("_output*.txt")]
    assert len(sizes) == 3
    assert max(sizes) <= 2**20 + 200
    assert session.record()["output_left_out_bytes"] > 3 * 2**20


# --- what a launcher has started ----------------------------------------------------------------------------

LAUNCHER = """
if "RANK" not in os.environ:
    import subprocess
    ranks = [subprocess.Popen([*sys.orig_argv[:5], *sys.orig_argv[5:]], env=os.environ | {"RANK": str(rank)},
        start_new_session=True) for rank in range(2)]
    here("launched")
    codes = [one.wait() for one in ranks]
    sys.exit(1 if any(codes) else 0)
rank = int(os.environ["RANK"])
pipe = os.open(os.environ["ROOST_REPORT_FD"], os.O_WRONLY)
def tell(**said): os.write(pipe, json.dumps(said).encode() + b"\\n")
def last(state, code, reason, error=None):
    tell(state=state, exit_code=code, reason=reason, error=error, rank=rank)
tell(launched=os.getpid())
"""


def test_the_ranks_of_a_launcher_are_asked_by_themselves(session: Session) -> None:
    code = LAUNCHER + "signal.signal(signal.SIGTERM, lambda *_: (last('stopped', 75, 'r'), sys.exit(0)))\n"
    child = session.start_spec(session.spec(code + "here(f'up{rank}'); forever()")._replace(is_launcher=True))
    session.wait_until("up0")
    session.wait_until("up1")
    child.terminate()
    assert child.wait(100) == 75
    assert session.record()["worker_status"] == 0, "torchrun would have killed its ranks"


def test_a_rank_of_a_launcher_fails(session: Session, messages: Messages) -> None:
    code = LAUNCHER + "if rank == 1: last('failed', 1, 'exception', 'ValueError: x'); sys.exit(1)\nforever()"
    spec = session.spec(code)._replace(is_launcher=True, limits=SessionLimits(peer_seconds=0.2))
    record = session.end_spec(spec)
    assert record["state"] == "failed" and "rank 1" in record["error"] and "ValueError: x" in record["error"]
    assert session.living() == [], "though each is in a session of its own"
    (waiting,) = said_of(session)
    assert "rank" not in waiting, "not how they come"
    messages.check(waiting)


def test_a_rank_of_a_launcher_has_lost_one_of_another_machine(session: Session) -> None:
    """Of which it says nothing itself."""
    code = LAUNCHER + "if rank == 1: last('failed', 1, 'peer', 'rank 2 is gone'); sys.exit(1)\nforever()"
    spec = session.spec(code)._replace(is_launcher=True, limits=SessionLimits(peer_seconds=0.2))
    record = session.end_spec(spec)
    assert said_of(session)[1:] == [f"roost: {record['error']}"]
    assert "rank 1" in record["error"] and "rank 2 is gone" in record["error"]


def test_a_rank_of_a_launcher_that_was_killed_is_the_cause(session: Session) -> None:
    """It wrote no report; its launcher reports its exit status, after another rank has lost it."""
    launcher = LAUNCHER.replace(
        "    sys.exit(1 if any(codes) else 0)\n",
        """    with open(os.environ["ROOST_REPORT_FD"], "wb", buffering=0) as pipe:
        for number, code in enumerate(codes):
            pipe.write(json.dumps({"rank": number, "status": code}).encode() + b"\\n")
    sys.exit(1)
""",
    )
    code = "if rank == 1: os.kill(os.getpid(), 9)\nlast('failed', 1, 'peer', 'rank 1 is gone'); sys.exit(1)"
    record = session.end_spec(session.spec(launcher + code)._replace(is_launcher=True))
    assert record["state"] == "crashed"
    assert "rank 1" in record["error"] and "SIGKILL" in record["error"]
    assert said_of(session)[1:] == [f"roost: {record['error']}"]


def test_a_killed_launcher_leaves_no_rank(session: Session) -> None:
    spec = session.spec(LAUNCHER + "here(f'up{rank}'); forever()")._replace(is_launcher=True)
    child = session.start_spec(spec)
    session.wait_until("up0")
    session.wait_until("up1")
    os.kill(session.record()["worker_pid"], signal.SIGKILL)
    assert child.wait(100) == 1
    assert session.living() == []


def test_the_memory_of_the_largest_rank_is_recorded(session: Session) -> None:
    line = "json.dumps({'memory': {'peak_mb': 100.0 * rank}}).encode() + b'\\n'"
    tell = f"os.write(int(os.environ['ROOST_REPORT_FD']), {line})"
    record = end_of(session, f"{tell}; end('succeeded', 0, 'finished')")
    assert record["memory"]["peak_mb"] == 200.0
