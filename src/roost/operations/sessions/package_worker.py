"""Workers that read a package and change nothing in it: while it trains, or where it is read-only. For a
project that is not a package yet see `project_worker`."""

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
from roost.config.run_settings import RunSettings
from roost.config.sections.limits import LimitSettings
from roost.operations.sessions import foreground_lease
from roost.operations.sessions.foreground_lease import SessionCards
from roost.operations.sessions.project_worker import StartedWorker, killed_at_exit
from roost.operations.sessions.running_session import RunningSession
from roost.operations.sessions.scratch_folder import remove_abandoned, scratch_folder
from roost.operations.sessions.session_request import limits_of_attended, start_worker
from roost.package import sessions
from roost.package.checkpoints import selection
from roost.package.dlnest.original_package import OriginalPackage
from roost.package.package import PackageFolder
from roost.package.seals import session_seal


def start_package_worker(
    package: PackageFolder,
    place: Path,
    request: Mapping[str, Any],
    settings: RunSettings | None,
    *,
    number: int = 1,
    lock_fd: int | None = None,
    session_cards: SessionCards = SessionCards(),  # noqa: B008  - immutable
    is_kept: bool = True,
) -> StartedWorker:
    """Writes a request into a folder and starts a worker for it. The worker ends when this process is gone.

    Args:
        package: The package that the worker reads.
        place: The folder for request, record and output.
        request: For the worker; its ``kind`` says what to do, see `roost.worker.__main__`.
        settings: Of the package; None if no code of the project runs.
        number: The number of the analysis, for messages.
        lock_fd: Holds the lock that protects the folder from `scratch_folder.remove_abandoned`.
        session_cards: The cards of the worker.
        is_kept: Whether the folder remains after the worker, and is sealed.

    Raises:
        CardsBusy: Another process has taken its card meanwhile.
        OSError: The request cannot be written.
        RoostError: The supervisor did not start.
    """
    token, device = secrets.token_hex(16), str(request.get("device"))
    body = {**request, **sessions.own_identity(), "token": token, "created": round(time.time(), 3)}
    durable.write(place / analysis_folder.REQUEST, sessions.to_json(body))
    running = RunningSession(
        package.path,
        number,
        request=place / analysis_folder.REQUEST,
        record=place / analysis_folder.RECORD,
        output=place / analysis_folder.OUTPUT,
    )
    with closing(foreground_lease.take_leases(session_cards, package.path)) as leases:
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
            seal=str(place / session_seal.FOLDER_SEAL) if is_kept else "",
        )
    return StartedWorker(running, process)


def select_checkpoints(
    package: PackageFolder, checkpoint: str | None, **words: str | None
) -> tuple[dict[str, Any], list[str]]:
    """Returns the selected checkpoints as a part of a request, and a note for each checkpoint that roost did
    not write.

    Args:
        package: The package.
        checkpoint: ``last``, ``best`` or an id.
        words: Further arguments of `roost.package.checkpoints.selection.parse_selection`.

    Raises:
        UsageError: The selection is not valid.
        NotFound: There is no such checkpoint.
        CheckpointError: None was written by roost.
    """
    what = selection.parse_selection(package, checkpoint, **words)
    notes = preconditions.check_checkpoints(package, what.id, fix="wait for its first one")
    if not isinstance(package, OriginalPackage):
        selection.candidates(package, what)
    return selection.to_json(what), notes


@contextmanager
def worker_on_package(
    package: PackageFolder,
    parent: Path,
    request: Mapping[str, Any],
    settings: RunSettings | None,
    *,
    fix: str,
    session_cards: SessionCards = SessionCards(),  # noqa: B008  - immutable
) -> Iterator[StartedWorker]:
    """Starts a worker as `start_package_worker` does, in a hidden folder of ``parent`` that is removed at the
    end. The worker renames finished results to their final path, so no partial result is ever visible. It
    ends with the block.

    Args:
        package: The package that the worker reads.
        parent: The folder of the result.
        request: For the worker.
        settings: As for `start_package_worker`.
        fix: What to do if the folder cannot be written.
        session_cards: As for `start_package_worker`.

    Raises:
        CardsBusy: Another process has taken its card meanwhile.
        Refused: The folder cannot be written.
        RoostError: The supervisor did not start.
    """
    with ExitStack() as stack:
        try:
            remove_abandoned(parent)
            place, lock_fd = stack.enter_context(scratch_folder(parent))
        except OSError as error:
            cause = error.strerror or error
            raise Refused(f"the folder cannot be written: {cause}", where=parent, fix=fix) from error
        worker = start_package_worker(
            package,
            place,
            request,
            settings,
            lock_fd=lock_fd,
            session_cards=session_cards,
            is_kept=False,
        )
        yield stack.enter_context(killed_at_exit(worker))
