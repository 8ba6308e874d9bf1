"""The process that sends the notices of runs without a task that were never sent, and ends.

The guard and supervisor of such a run were killed, or its sending process was. Every process that finds such
an entry (`roost.supervisor.notices.run_notice_list`) starts this one as ``python -m
roost.lab.notices.unsent_run_notices``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from roost.base.errors import NotFound, RoostError
from roost.lab.notices import delivery, receivers, run_notice
from roost.lab.notices.notice_events import EVENT_BY_KIND
from roost.package.sessions import Session
from roost.supervisor.notices import run_notice_list
from roost.supervisor.notices.run_notice_list import UnsentRunNotice


def send_entry(path: str, *, pauses: Sequence[float] = delivery.RETRY_PAUSES) -> None:
    """Sends the notice of an entry's run, and removes the entry.

    The entry stays if the run may still be running on another machine, if another process sends its notice,
    or if its settings have an error.

    Args:
        path: The entry.
        pauses: As in `delivery.deliver`.
    """
    with run_notice_list.lock_entry(path) as entry:
        if entry is None:
            return
        try:
            is_settled = _send(entry, pauses)
        except OSError:  # such as of a disk that does not respond: the other entries are still sent
            is_settled = False
        if is_settled:
            run_notice_list.remove_entry(path)
        else:
            run_notice_list.postpone_entry(path)


def _send(entry: UnsentRunNotice, pauses: Sequence[float]) -> bool:
    """Sends the notice of an entry's run; returns whether the entry is done."""
    package = Path(entry.package)
    session = _last_restart(package, entry.session)
    if session is None:
        return True
    try:
        settings = receivers.read_settings(Path(entry.settings))
    except RoostError as error:  # no receivers; or the notice is sent after the settings are corrected
        return isinstance(error, NotFound)
    if session.state not in EVENT_BY_KIND:
        return False
    run_notice.record_failures(run_notice.send(package, session.number, settings, pauses=pauses))
    return True


def _last_restart(package: Path, number: int) -> Session | None:
    """Returns the last automatic restart of a session; None if the package is gone, or a user has continued
    the run and so knows that it ended."""
    while (package / "sessions" / f"{number + 1}.request.json").exists():
        if run_notice.read_session(package, number + 1).request.restart_of != number:
            return None
        number += 1
    return run_notice.read_session(package, number) if (package / "sessions").is_dir() else None


def main() -> None:
    """Sends the notice of every unsent entry."""
    for path in run_notice_list.unsent_entries(os.environ):
        send_entry(path)


if __name__ == "__main__":
    main()
