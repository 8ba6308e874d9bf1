"""``mirror``: whether the mirrors of packages have all rows, and sending what they lack."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from roost.base.errors import RoostError
from roost.operations import work_progress
from roost.operations.listing.known_folders import known_folders
from roost.operations.listing.list_packages import find_packages
from roost.operations.listing.named_packages import select_packages
from roost.operations.reading import package_schema
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.project_preflight import parse_package_settings
from roost.package.session_schema import LIVE_STATES
from roost.package.setting_locations import setting_locations
from roost.train.mirrors import mirror_completeness, mirror_process
from roost.train.mirrors.mirror_kinds import MIRRORS_FOLDER, enabled_mirrors
from roost.train.mirrors.mirror_process import FlushReport, MirrorTask
from roost.train.mirrors.sink import RunIdentity, SessionEnd

TIMEOUT_SECONDS = 60.0
"""How long one mirror may take to get what it lacks."""
_ENDS: dict[str, SessionEnd] = {"succeeded": "finished", "stopped": "stopped"}

Completeness = Literal["complete", "incomplete", "running", "unknown"]
"""complete: the mirror has all rows; incomplete: it may lack some; running: the mirrors of the session send
them; unknown: the package or its settings cannot be read."""


class MirrorState(NamedTuple):
    """The state of one mirror of a package."""

    package: str
    kind: str
    """csv, tensorboard, wandb or mlflow; empty if the settings of the package cannot be read."""
    state: Completeness
    error: str | None = None
    """Why it lacks rows after a flush, or is unknown."""
    rows: int = 0
    """How many rows a flush has sent."""
    lines: tuple[str, ...] = ()
    """What the mirror has printed."""


def list_mirrors(words: Sequence[str] = ()) -> Iterator[MirrorState]:
    """Yields the mirrors of packages, as their settings name them now.

    Args:
        words: As `select_packages` takes them; empty: all packages of `known_folders`.

    Raises:
        NotFound: A word names nothing.
        UsageError: A query is not valid.
    """
    for _, states in _mirrors(words):
        yield from (state for state, _ in states)


def flush_mirrors(
    words: Sequence[str] = (), *, timeout_seconds: float = TIMEOUT_SECONDS
) -> Iterator[MirrorState]:
    """Sends what the mirrors of packages lack whose sessions have ended, and yields the state of each mirror
    then. No session is begun; the package's records remain as they are.

    Args:
        words: As for `list_mirrors`.
        timeout_seconds: How long one mirror may take; then its process is killed, and the next flush
            continues.

    Raises:
        NotFound: A word names nothing.
        UsageError: A query is not valid.
    """
    for package, states in _mirrors(words):
        for state, settings in states:
            if state.state == "incomplete":
                yield _flush(package, state, settings, timeout_seconds)
            else:
                yield state


_MirrorSettings = tuple[MirrorState, Any]


def _mirrors(words: Sequence[str]) -> Iterator[tuple[PackageFolder, list[_MirrorSettings]]]:
    if words:
        paths = select_packages(words)
    else:
        paths = [one.folder / one.name for one in find_packages(known_folders()).selected]
    for path in work_progress.track(paths, "looking at mirrors"):
        package = PackageFolder(path)
        try:
            yield package, list(_mirrors_of(package_schema.open_checked(path)))
        except (RoostError, OSError) as error:
            yield package, [(MirrorState(str(path), "", "unknown", str(error)), None)]


def _mirrors_of(package: PackageFolder) -> Iterator[_MirrorSettings]:
    if not PackageKind.of(package.request).trains:  # programs and imported runs: only trainings have mirrors
        return
    where = setting_locations(package)
    settings = parse_package_settings(
        package, package.settings, project=package.project, folder=str(package.path), where=where
    )
    is_live = package.state in LIVE_STATES
    for kind, chosen in enabled_mirrors(settings.mirrors, where=where).items():
        note = package.path / MIRRORS_FOLDER / f"{kind}.json"
        is_complete = mirror_completeness.has_all_records(package.path, note)
        state: Completeness = "running" if is_live else "complete" if is_complete else "incomplete"
        yield MirrorState(str(package.path), kind, state), chosen


def _flush(package: PackageFolder, state: MirrorState, settings: Any, timeout_seconds: float) -> MirrorState:
    identity = RunIdentity(name=package.path.name, project=package.project.name, settings=package.settings)
    task = MirrorTask(
        package=str(package.path.absolute()),
        kind=state.kind,
        settings=msgspec.to_builtins(settings),
        identity=identity,
        is_flush=True,
    )
    end = _ENDS.get(package.state, "failed")
    with mirror_process.start(task, stdout=subprocess.PIPE) as process:
        try:
            printed, _ = process.communicate(end.encode() + b"\n", timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            return state._replace(error=f"it did not get all rows within {timeout_seconds:g} s")
        except BaseException:  # Ctrl-C, from which its process session is kept apart
            _kill(process)
            raise
    *lines, last = printed.decode(errors="replace").splitlines() or [""]
    try:
        report = msgspec.json.decode(last, type=FlushReport)
    except msgspec.MsgspecError:
        return state._replace(
            error=f"its process ended with {process.returncode}: {last}", lines=tuple(lines)
        )
    if report.error is not None:
        return state._replace(error=report.error, lines=tuple(lines))
    return state._replace(state="complete", rows=report.rows, lines=tuple(lines))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a mirror with all processes that its library has started."""
    with contextlib.suppress(ProcessLookupError):  # it has not started yet
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
