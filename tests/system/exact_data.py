"""Runs on every kind of data, ended in every manner, one after the other in one run, and gone on with.

A session waits where it is to be ended (see exact_project/halts.py), so every case is the same each time.

    echo '["weighted", 0, [["kill", 2], ["edge", 1]]]' | python tests/system/exact_data.py      a `Case`

Answers each line with one of its own: ``same``, or which parts of the outcome differ.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import exact
import torch
from data_kinds import KINDS, STREAMS, Case, compare
from ended import workers_of
from forked import fork_session
from waiting import wait_for

from roost.base.errors import STOPPED_EXIT_CODE
from roost.package import live_progress
from roost.package.package import PackageFolder

_STEPS = {"stop": 1, "kill": 3, "trainer": 5, "worker": "after"}
_READS = 12
_OFFSETS = {"before": -1, "edge": 0, "after": 1}


@cache
def uninterrupted(root: Path, kind: str, workers: int) -> dict[str, Any]:
    """The result of the run without interruption."""
    package = exact.create(root, [*KINDS[kind], f"data.num_workers={workers}"])
    _, status = os.waitpid(fork_session(package, []), 0)
    assert status == 0, package.output.read_text()[-2000:]
    return exact.fingerprint(package.path)


def outcome(root: Path, case: Case) -> dict[str, Any]:
    """What a run gives whose sessions were ended so."""
    kind, asked, legs = case
    package = exact.create(root, [*KINDS[kind], f"data.num_workers={asked}"])
    for end, then in legs:
        _cut(package, end, asked)
        asked = then
    _, status = os.waitpid(_forked(package, asked), 0)
    text = package.output.read_text()
    assert status == 0, text[-2000:]
    if kind in STREAMS and case.workers == 2:
        assert "the 2 workers" in text
    return exact.fingerprint(package.path)


def _forked(package: PackageFolder, workers: int, *, step: Any = None, read: int | None = None) -> int:
    for name in ("waiting", "go"):
        (package.path / name).unlink(missing_ok=True)
    live_progress.reset(package.progress)
    halt = f"halt={{step: {step or 'null'}, read: {read or 'null'}}}"
    return fork_session(package, [f"data.num_workers={workers}", halt])


def _cut(package: PackageFolder, end: str, workers: int) -> None:
    """A session that is ended so."""
    at = end if end in _OFFSETS else _STEPS.get(end)
    pid = _forked(package, workers, step=at, read=_READS if end == "fetch" else None)
    waiting = package.path / "waiting"
    wait_for(lambda: waiting.exists() or _has_ended(package, pid))
    if end in _OFFSETS:
        look = live_progress.read(package.progress)
        assert look is not None
        step = look.steps_per_epoch + _OFFSETS[end]
        wait_for(lambda: package.store().lineage()[-1].step == step)
    _END_BY.get(end, _kill)(package, pid)


def _has_ended(package: PackageFolder, pid: int) -> bool:
    assert os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None, (
        f"it ended before: {package.output.read_text()[-2000:]}"
    )
    return False


def _kill(package: PackageFolder, pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _kill_trainer(package: PackageFolder, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _kill_reader(package: PackageFolder, pid: int) -> None:
    _kill_one(package, pid, int((package.path / "waiting").read_text()))


def _kill_worker(package: PackageFolder, pid: int) -> None:
    _kill_one(package, pid, [*workers_of(pid), pid][0])


def _kill_one(package: PackageFolder, pid: int, victim: int) -> None:
    """The trainer, or a process whose end it is to notice."""
    os.kill(victim, signal.SIGKILL)
    if victim != pid:
        (package.path / "go").touch()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    text = package.output.read_text()[-2000:]
    assert code == (-signal.SIGKILL if victim == pid else 1), f"{code}: {text}"
    assert victim == pid or "kill" in text, text


def _stop(package: PackageFolder, pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    (package.path / "go").touch()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == STOPPED_EXIT_CODE, f"{code}: {package.output.read_text()[-2000:]}"


_END_BY: dict[str, Callable[[PackageFolder, int], None]] = {
    "stop": _stop,
    "trainer": _kill_trainer,
    "fetch": _kill_reader,
    "worker": _kill_worker,
}


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="roost-exact-") as folder:
        for line in sys.stdin:
            case = Case(*json.loads(line))
            try:
                expected = uninterrupted(Path(folder), case.kind, case.workers if case.kind in STREAMS else 0)
                different = compare(case.kind, expected, outcome(Path(folder), case))
                answer = f"different: {', '.join(different)}" if different else "same"
            except Exception as error:  # noqa: BLE001  - the test that waits reports it
                answer = repr(error)
            print(answer, flush=True)


if __name__ == "__main__":
    main()
