"""Tells of a run that is in no queue, and ends.

Started as ``python -m roost.lab.notices.run_notice PACKAGE SESSION ENTRY``
(`roost.supervisor.notices.run_notice_process`) when it
has ended, with its place on the list (`roost.supervisor.notices.run_notice_list`) or nothing; with
``stalled`` at a stall.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from roost.base.errors import RoostError
from roost.lab.notices import delivery, notice_events, notice_text, receivers
from roost.lab.notices.notice_events import EVENT_OF
from roost.lab.notices.queue_notices import NOT_TOLD
from roost.lab.notices.receivers import Settings
from roost.lab.queue.history import Event
from roost.lab.queue.queue_store import Store
from roost.lab.queue.task import CRASHED, Task
from roost.lab.scheduling.attempt_outcome import describe_end
from roost.lab.scheduling.stall_events import STALLED, describe_stall
from roost.package import live_progress, sessions
from roost.package.sessions import Session
from roost.supervisor.notices import run_notice_list

LEAST_MINUTES = 10.0
"""Where the settings do not say: of a shorter run who began it needs no notice, he sits there still."""


def tell(
    package: Path,
    session: int,
    asked: Settings,
    *,
    has_stalled: bool,
    pauses: Sequence[float] = delivery.PAUSES,
) -> list[str]:
    """Tells of a session to all who want to be told; gives who could not be, and why.

    Args:
        package: Its package.
        session: Its number.
        asked: The settings.
        has_stalled: Whether it is of its last stall, and not of its end.
        pauses: As of `sending.deliver`.
    """
    found = find(package, session)
    event = _stall(found) if has_stalled else _end(package, found)
    if event is None:
        return []
    task = Task(
        id="",
        name=package.name,
        package=str(package),
        user="",
        state=found.state,
        submitted=0.0,
        session=session,
        started=sessions.unix_seconds((found.record or {}).get("started")),
        ended=None if has_stalled else event.at,
    )
    if not asked.want(EVENT_OF[event.kind], notice_text.seconds(event, task), least_minutes=LEAST_MINUTES):
        return []
    stands = f"{package}:{session}:{task.started}:{event.text}".encode(errors="replace")
    notice = notice_text.of([(event, task)], id=f"run.{hashlib.sha256(stands).hexdigest()[:20]}")
    failed = []
    for name, receiver in asked.receivers.items():
        if why := delivery.deliver(receiver, notice, pauses=pauses):
            failed.append(f"{name} ({receiver.kind}): {why}; `roost notices --test`; the run {package}")
    return failed


def find(package: Path, session: int) -> Session:
    """A session of a package; one whose process is gone has crashed, whatever its record says."""
    folder = package / "sessions"
    files = (folder / f"{session}.request.json", folder / f"{session}.json")
    return sessions.read(*files, number=session, lock=package / "lock")


def note(failed: Sequence[str]) -> None:
    """Notes among the lab's events who could not be told, and why."""
    if failed:
        with contextlib.suppress(RoostError, OSError), Store.open() as store, store.together():
            for why in failed:
                store.note(NOT_TOLD, why)


def _stall(session: Session) -> Event | None:
    """Its last one; None if the record does not tell."""
    stalls = (session.record or {}).get("stalls")
    text = describe_stall(stalls[-1]) if isinstance(stalls, list) and stalls else ""
    return Event(session.number, time.time(), None, STALLED, text) if text else None


def _end(package: Path, session: Session) -> Event | None:
    """How it has ended; None if it has not, or has never begun."""
    record = session.record
    if record is None or session.state not in EVENT_OF:
        return None
    ended = sessions.unix_seconds(record.get("ended"))
    if ended is None and session.state == CRASHED:  # nobody was left who could have written it down
        seen = live_progress.read(package / "progress")
        ended = seen.wall if seen is not None else None
    why = describe_end(session.state, str(session.error or record.get("reason") or ""))
    return Event(session.number, ended or time.time(), None, session.state, why)


def main() -> int:
    """``of_run.py PACKAGE SESSION [stalled|ENTRY]``."""
    package, session, more = Path(sys.argv[1]), int(sys.argv[2]), "".join(sys.argv[3:])
    try:
        failed = tell(package, session, receivers.read(notice_events.path()), has_stalled=more == "stalled")
    except RoostError as error:  # it stays on the list, and is told once they are right
        note([f"{error}; the run {package}"])
        return 1
    note(failed)
    if more.startswith("/"):
        run_notice_list.remove_entry(more)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
