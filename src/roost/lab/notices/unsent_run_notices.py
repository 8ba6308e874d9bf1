"""Tells of runs in no queue whose guard and supervisor were killed, or whose notice was, and ends; started as
``python -m roost.lab.notices.unsent_run_notices`` by whoever has seen such an entry
(`roost.supervisor.notices.run_notice_list`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from roost.base.errors import NotFound, RoostError
from roost.lab.notices import delivery, receivers, run_notice
from roost.lab.notices.notice_events import EVENT_OF
from roost.package.sessions import Session
from roost.supervisor.notices import run_notice_list
from roost.supervisor.notices.run_notice_list import UnsentRunNotice


def tell(path: str, *, pauses: Sequence[float] = delivery.PAUSES) -> None:
    """Tells of the run of an entry, and takes it off the list. One that may run still, on another machine, or
    of which somebody else tells, or whose settings are wrong, stays.

    Args:
        path: The entry.
        pauses: As of `sending.deliver`.
    """
    with run_notice_list.lock_entry(path) as entry:
        if entry is None:
            return
        try:
            is_settled = _tell(entry, pauses)
        except OSError:  # such as of a disk that does not answer: the others on the list are told of
            is_settled = False
        if is_settled:
            run_notice_list.remove_entry(path)
        else:
            run_notice_list.postpone_entry(path)


def _tell(entry: UnsentRunNotice, pauses: Sequence[float]) -> bool:
    """Tells of it; gives whether nothing is left to be told."""
    package = Path(entry.package)
    session = _last(package, entry.session)
    if session is None:
        return True
    try:
        asked = receivers.read(Path(entry.settings))
    except RoostError as error:  # nobody wants to be told; or it is told once they are right
        return isinstance(error, NotFound)
    if session.state not in EVENT_OF:
        return False
    run_notice.note(run_notice.tell(package, session.number, asked, has_stalled=False, pauses=pauses))
    return True


def _last(package: Path, number: int) -> Session | None:
    """The last of those that have followed by themselves. None: the package is gone, or a person has gone on
    with it, and knows."""
    while (package / "sessions" / f"{number + 1}.request.json").exists():
        if run_notice.find(package, number + 1).request.get("restart_of") != number:
            return None
        number += 1
    return run_notice.find(package, number) if (package / "sessions").is_dir() else None


def main() -> None:
    """``left.py``."""
    for path in run_notice_list.unsent_entries(os.environ):
        tell(path)


if __name__ == "__main__":
    main()
