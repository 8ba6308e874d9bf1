"""The process that sends the notice of a run without a task, and ends.

Started by `roost.supervisor.notices.run_notice_process` as ``python -m roost.lab.notices.run_notice PACKAGE
SESSION ENTRY`` after the run has ended, where ENTRY is the run's entry in the list of
`roost.supervisor.notices.run_notice_list`, or is left out; while the run continues with ``stalled`` or ``not
durable`` in its place.
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
from roost.lab.notices.notice_events import EVENT_BY_KIND
from roost.lab.notices.queue_notices import NOT_SENT
from roost.lab.notices.receivers import NoticeSettings
from roost.lab.queue.history import QueueEvent
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import CRASHED, Task
from roost.lab.scheduling.attempt_outcome import describe_end
from roost.lab.scheduling.durability_events import NOT_DURABLE, describe_not_durable
from roost.lab.scheduling.stall_events import STALLED, describe_stall
from roost.package import live_progress, sessions
from roost.package.remote import remote_status
from roost.package.sessions import Session
from roost.supervisor.notices import run_notice_list

LEAST_MINUTES = 10.0
"""The default of ``least_minutes``: the user who started a shorter run is still at the terminal."""


def send(
    package: Path,
    session: int,
    settings: NoticeSettings,
    *,
    kind: str = "",
    pauses: Sequence[float] = delivery.RETRY_PAUSES,
) -> list[str]:
    """Sends the notice of a session to all receivers; returns a line for each failure, with its reason.

    Args:
        package: The package of the session.
        session: Its number.
        settings: The receivers and the events that they get.
        kind: `STALLED` for a notice about the last stall, `NOT_DURABLE` for one about the remote copy; empty:
            about the end.
        pauses: As in `delivery.deliver`.
    """
    found = read_session(package, session)
    event = (
        _stall_event(found)
        if kind == STALLED
        else _durability_event(package, found)
        if kind == NOT_DURABLE
        else _end_event(package, found)
    )
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
        started=sessions.unix_seconds(found.recorded.started),
        ended=None if kind else event.at,
    )
    if not settings.selects(
        EVENT_BY_KIND[event.kind], notice_text.duration_seconds(event, task), least_minutes=LEAST_MINUTES
    ):
        return []
    key = f"{package}:{session}:{task.started}:{event.text}".encode(errors="replace")
    notice = notice_text.compose([(event, task)], id=f"run.{hashlib.sha256(key).hexdigest()[:20]}")
    failed = []
    for name, receiver in settings.receivers.items():
        if why := delivery.deliver(receiver, notice, pauses=pauses):
            failed.append(f"{name} ({receiver.kind}): {why}; `roost notices --test`; the run {package}")
    return failed


def read_session(package: Path, session: int) -> Session:
    """Reads a session of a package; one whose process is gone has crashed, whatever its record says."""
    folder = package / "sessions"
    files = (folder / f"{session}.request.json", folder / f"{session}.json")
    return sessions.read(*files, number=session, lock=package / sessions.LOCK_NAME)


def record_failures(failed: Sequence[str]) -> None:
    """Records failures, a line each, as events of the lab."""
    if failed:
        with contextlib.suppress(RoostError, OSError), QueueStore.open() as store, store.transaction():
            for why in failed:
                store.add_event(NOT_SENT, why)


def _stall_event(session: Session) -> QueueEvent | None:
    """Returns an event of the last stall; None if the record has none."""
    stalls = session.recorded.stalls
    text = describe_stall(stalls[-1]) if isinstance(stalls, list) and stalls else ""
    return QueueEvent(session.number, time.time(), None, STALLED, text) if text else None


def _durability_event(package: Path, session: Session) -> QueueEvent | None:
    """Returns an event of the remote copy; None if uploads do not fail now."""
    status = remote_status.read(package)
    if status is None or status.error_since is None:
        return None
    return QueueEvent(session.number, time.time(), None, NOT_DURABLE, describe_not_durable(status))


def _end_event(package: Path, session: Session) -> QueueEvent | None:
    """Returns an event of the end; None if the session has not ended or never started."""
    record = session.record
    if record is None or session.state not in EVENT_BY_KIND:
        return None
    ended = sessions.unix_seconds(record.ended)
    if ended is None and session.state == CRASHED:  # no process was left to record it
        progress = live_progress.read(package / "progress")
        ended = progress.wall if progress is not None else None
    why = describe_end(session.state, str(session.error or record.reason or ""))
    return QueueEvent(session.number, ended or time.time(), None, session.state, why)


def main() -> int:
    """``run_notice PACKAGE SESSION [stalled|not durable|ENTRY]``: sends the notice of one session."""
    package, session, more = Path(sys.argv[1]), int(sys.argv[2]), "".join(sys.argv[3:])
    try:
        failed = send(
            package,
            session,
            receivers.read_settings(notice_events.settings_path()),
            kind=more if more in (STALLED, NOT_DURABLE) else "",
        )
    except (
        RoostError
    ) as error:  # the entry stays in the list: the notice is sent after the settings are corrected
        record_failures([f"{error}; the run {package}"])
        return 1
    record_failures(failed)
    if more.startswith("/"):
        run_notice_list.remove_entry(more)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
