"""Tells of a run that is in no queue, and ends.

Started as ``python -m roost.lab.notices.of_run PACKAGE SESSION`` when that has ended, with ``stalled`` after
it while it stalls (`roost.lab.notices.alone`).
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roost.base.errors import RoostError
from roost.lab.aftermath import in_words
from roost.lab.notices import kinds, message, sending, settings
from roost.lab.notices.kinds import EVENT_OF
from roost.lab.notices.settings import Settings
from roost.lab.notices.tell import NOT_TOLD
from roost.lab.remembered import Event
from roost.lab.stalls import STALLED, sentence
from roost.lab.store import Store
from roost.lab.task import Task
from roost.package import sessions

LEAST_MINUTES = 10.0
"""Where the settings do not say: of a shorter run who began it needs no notice, he sits there still."""


def tell(
    package: Path,
    session: int,
    asked: Settings,
    *,
    has_stalled: bool,
    pauses: Sequence[float] = sending.PAUSES,
) -> list[str]:
    """Tells of a session to all who want to be told; gives who could not be, and why.

    Args:
        package: Its package.
        session: Its number.
        asked: The settings.
        has_stalled: Whether it is of its last stall, and not of its end.
        pauses: As of `sending.deliver`.
    """
    record = sessions.load(package / "sessions" / f"{session}.json") or {}
    event = _event(session, record, has_stalled=has_stalled)
    if event is None:
        return []
    task = Task(
        id="",
        name=package.name,
        package=str(package),
        user="",
        state=str(record.get("state")),
        submitted=0.0,
        session=session,
        started=_moment(record.get("started")),
        ended=_moment(record.get("ended")),
    )
    if not asked.want(EVENT_OF[event.kind], message.seconds(event, task), least_minutes=LEAST_MINUTES):
        return []
    stands = f"{package}:{session}:{task.started}:{event.text}".encode(errors="replace")
    notice = message.of([(event, task)], id=f"run.{hashlib.sha256(stands).hexdigest()[:20]}")
    failed = []
    for name, receiver in asked.receivers.items():
        if why := sending.deliver(receiver, notice, pauses=pauses):
            failed.append(f"{name} ({receiver.kind}): {why}; `roost notices --test`; the run {package}")
    return failed


def _event(session: int, record: Mapping[str, Any], *, has_stalled: bool) -> Event | None:
    """What happened; None if the record does not tell."""
    if has_stalled:
        stalls = record.get("stalls")
        text = sentence(stalls[-1]) if isinstance(stalls, list) and stalls else ""
        return Event(session, time.time(), None, STALLED, text) if text else None
    state, reason = str(record.get("state")), str(record.get("error") or record.get("reason") or "")
    if state not in EVENT_OF:
        return None
    why = in_words(state, reason)
    return Event(session, _moment(record.get("ended")) or time.time(), None, state, why)


def _moment(found: object) -> float | None:
    return float(found) if isinstance(found, int | float) else None


def main() -> int:
    """``of_run.py PACKAGE SESSION [stalled]``."""
    package, session, has_stalled = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["stalled"]
    try:
        failed = tell(package, session, settings.read(kinds.path()), has_stalled=has_stalled)
    except RoostError as error:
        failed = [f"{error}; the run {package}"]
    if failed:
        with contextlib.suppress(RoostError, OSError), Store.open() as store, store.together():
            for why in failed:
                store.note(NOT_TOLD, why)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
