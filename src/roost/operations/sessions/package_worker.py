"""A worker that does something with a package and changes nothing of it: beside its training, or of a package
that may only be read. `aside` is for a project that is no package yet."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from roost.analysis import analysis_folder, preconditions
from roost.base import durable
from roost.base.errors import Refused
from roost.config.sections.limits import LimitSettings
from roost.config.settings import Settings
from roost.operations.sessions import foreground_lease
from roost.operations.sessions.foreground_lease import SessionCards
from roost.operations.sessions.project_worker import StartedWorker, killed_at_exit
from roost.operations.sessions.running_session import RunningSession
from roost.operations.sessions.scratch_folder import remove_abandoned, scratch_folder
from roost.operations.sessions.session_request import limits_of_attended, start_worker
from roost.package import sessions
from roost.package.checkpoints import selection
from roost.package.package import PackageFolder


def start_package_worker(
    package: PackageFolder,
    place: Path,
    asked: Mapping[str, Any],
    settings: Settings | None,
    *,
    number: int = 1,
    lock_fd: int | None = None,
    session_cards: SessionCards = SessionCards(),  # noqa: B008  - cannot be changed
) -> StartedWorker:
    """Starts a worker for the request in ``place``, which this writes. It ends when this process is gone.

    Args:
        package: What it works on.
        place: The folder that takes request, record and output.
        asked: What the worker reads; its ``kind`` says what is done, see `roost.worker.__main__`.
        settings: The package's; None where no code of the project runs.
        number: Of what runs, for messages.
        lock_fd: Keeps the folder from being swept away.
        needed: What it computes on.

    Raises:
        Busy: Somebody has taken its card meanwhile.
        OSError: The request cannot be written.
        RoostError: The supervisor did not start.
    """
    token, device = secrets.token_hex(16), str(asked.get("device"))
    body = {**asked, **sessions.own_identity(), "token": token, "created": round(time.time(), 3)}
    durable.write(place / analysis_folder.REQUEST, sessions.to_json(body))
    running = RunningSession(
        package.path,
        number,
        request=place / analysis_folder.REQUEST,
        record=place / analysis_folder.RECORD,
        output=place / analysis_folder.OUTPUT,
    )
    with closing(foreground_lease.take_leases(session_cards.cards, package.path)) as leases:
        process = start_worker(
            running,
            str(place),
            token=token,
            lock_fd=lock_fd,
            cpu=device == "cpu",
            cards=session_cards.ids,
            leases=leases,
            limits=limits_of_attended(settings.limits if settings else LimitSettings()),
            stacks=str(place / analysis_folder.STACKS),
        )
    return StartedWorker(running, process)


def select_checkpoints(
    package: PackageFolder, checkpoint: str | None, **words: str | None
) -> tuple[dict[str, Any], list[str]]:
    """Which checkpoints are meant, for a request, and a line for each that roost did not write.

    Args:
        package: The package.
        checkpoint: ``last``, ``best`` or an id.
        words: More of `roost.package.checkpoints.selection.parse_selection`.

    Raises:
        UsageError: The words mean nothing.
        NotFound: There is no such checkpoint.
        CheckpointError: None was written by roost.
    """
    what = selection.parse_selection(package, checkpoint, **words)
    notes = preconditions.check_checkpoints(package, what.id, fix="wait for its first one")
    selection.candidates(package, what)
    return selection.to_json(what), notes


@contextmanager
def worker_on_package(
    package: PackageFolder,
    parent: Path,
    asked: Mapping[str, Any],
    settings: Settings | None,
    *,
    fix: str,
    session_cards: SessionCards = SessionCards(),  # noqa: B008  - cannot be changed
) -> Iterator[StartedWorker]:
    """Starts a worker as `start_package_worker` does, in a hidden folder of ``parent`` that is removed at the end: what it
    has finished there it renames to its place, so nothing half is ever seen. It ends with the block.

    Args:
        package: What it works on.
        parent: Where the result goes.
        asked: What the worker reads.
        settings: As for `start_package_worker`.
        fix: What to do where nothing can be written.
        needed: As for `start_package_worker`.

    Raises:
        Busy: Somebody has taken its card meanwhile.
        Refused: Nothing can be written there.
        RoostError: The supervisor did not start.
    """
    with ExitStack() as stack:
        try:
            remove_abandoned(parent)
            place, lock_fd = stack.enter_context(scratch_folder(parent))
        except OSError as error:
            said = error.strerror or error
            raise Refused(f"nothing can be written here: {said}", where=parent, fix=fix) from error
        worker = start_package_worker(
            package, place, asked, settings, lock_fd=lock_fd, session_cards=session_cards
        )
        yield stack.enter_context(killed_at_exit(worker))
