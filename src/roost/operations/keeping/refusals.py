"""Why a package must not be removed or pruned now: it runs, it waits, something else needs it, or the user
keeps it."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from roost.analysis import analysis_folder
from roost.base import safe_read
from roost.base.errors import NotFound, Refused, RoostError, UsageError, with_fix
from roost.base.system import state_folder
from roost.base.text.word_list import join_names
from roost.lab.queue import task_file
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import LIVE, PENDING
from roost.operations import resolve
from roost.operations.listing.list_packages import entries
from roost.operations.listing.named_packages import is_query
from roost.operations.reading import package_schema
from roost.package import labels, session_folder, sessions
from roost.package.checkpoints import checkpoint, pruning
from roost.package.kinds import TASK_KINDS, TaskKind
from roost.package.package import PackageFolder
from roost.package.session_folder import SessionFolder

_MAX_SHOWN = 5


class Refusal(NamedTuple):
    """Why one package must not be removed."""

    package: Path
    reason: str
    fix: str | None
    is_by_lock: bool = False
    """Whether the reason is only that a process holds the package's lock, which may be the caller."""

    def __str__(self) -> str:
        return with_fix(f"{package_schema.printable(str(self.package))} {self.reason}", self.fix)


def require_none(refusals: Sequence[Refusal], *, verb: str) -> None:
    """Checks that there is no refusal.

    Args:
        refusals: Those of all packages of one request.
        verb: What was requested, such as ``removed``.

    Raises:
        Refused: There are some; the message has each of the first ones, with its fix.
    """
    if not refusals:
        return
    found = [str(one) for one in refusals[:_MAX_SHOWN]]
    if len(refusals) > _MAX_SHOWN:
        found.append(f"and {len(refusals) - _MAX_SHOWN} more")
    raise Refused(f"nothing was {verb}: {'. '.join(found)}")


def require_no_reader(words: Sequence[str], *, verb: str) -> None:
    """Checks that no word names a task that only reads a package, such as an analyzer: its package would go.

    Args:
        words: As the user typed them.
        verb: As for `require_none`.

    Raises:
        UsageError: A word names such a task.
    """
    for word in words:
        is_path = os.path.lexists(word) and session_folder.find_at(Path(word)) is None
        if is_path or is_query(word) or resolve.find_in_runs(word) is not None:
            continue
        task = resolve.find_reading_task(word)
        if task is not None:
            what = f"this is the {task.traits.noun} {task.label} of a package, and only packages are {verb}"
            fix = f"name the package if you mean it: {quote(task.package)}"
            raise UsageError(what, received=word, fix=fix)


def find_refusals(packages: Sequence[Path]) -> list[Refusal]:
    """Returns why packages must not be removed together: at most one reason for each."""
    dependents = Dependents(packages)
    return [found for one in packages if (found := _refusal(one, dependents)) is not None]


def find_use(package: Path, dependents: Dependents) -> Refusal | None:
    """Returns why a package must not be removed, for the holder of its lock; None if it may."""
    found = _refusal(package, dependents)
    return None if found is None or found.is_by_lock else found


@contextlib.contextmanager
def locked(package: PackageFolder, dependents: Dependents, *, verb: str) -> Iterator[None]:
    """Holds the lock of a package that may be removed, so that no session begins meanwhile.

    Args:
        package: The package.
        dependents: As for `find_use`.
        verb: As for `require_none`.

    Raises:
        NotFound: Another process has removed the package.
        Refused: It must not be removed, or another process holds the lock.
    """
    try:
        fd = package.lock()
    except FileNotFoundError:
        raise NotFound("was removed meanwhile", where=package.path) from None
    try:
        if not _is_lock_of(fd, package):
            raise NotFound("was removed meanwhile", where=package.path)
        if (found := find_use(package.path, dependents)) is not None:
            require_none([found], verb=verb)
        yield
    finally:
        os.close(fd)


def _is_lock_of(lock: int, package: PackageFolder) -> bool:
    """Whether the locked file is still the lock of the package at this path."""
    own = os.fstat(lock)
    try:
        now = os.stat(package.path / sessions.LOCK_NAME)  # noqa: PTH116
    except FileNotFoundError:
        return False
    return (own.st_ino, own.st_dev) == (now.st_ino, now.st_dev)


def _refusal(package: Path, dependents: Dependents) -> Refusal | None:
    if package.is_symlink():
        return Refusal(
            package, "is a symbolic link", f"name the package itself: {quote(str(package.readlink()))}"
        )
    try:
        package_schema.require_changeable(package)
        needs = dependents.of(package) if dependents is not None else ()
        for reason, fix in itertools.chain(_uses(package), needs, _foreign(package)):
            return Refusal(package, reason, fix)
        if safe_read.is_locked(package / sessions.LOCK_NAME):
            return Refusal(package, "is in use by another process", "let that process end", is_by_lock=True)
    except RoostError as error:
        return Refusal(package, f"cannot be judged: {error.message}", error.fix)
    except OSError as error:
        return Refusal(package, f"cannot be read: {error.strerror or error}", None)
    return None


_Reason = tuple[str, str | None]


def _uses(package: Path) -> Iterator[_Reason]:
    """Yields why the package itself is in use, or is kept."""
    path = quote(str(package))
    if labels.read(package).starred:
        yield "is starred", f"roost unstar {path}"
    newest = next(reversed(sessions.read_all(package / "sessions")), None)
    if newest is not None and newest.is_live:
        yield f"is {newest.state}", f"roost stop {path}"
    for kind, folder in session_folder.find_all(package):
        yield from _uses_by_reader(kind, folder)
    for one in analysis_folder.read_all(package / analysis_folder.NAME):
        if one.is_live:
            yield (
                f"is being analyzed ({analysis_folder.NAME}/{one.number})",
                "wait for the end of the analysis",
            )
    waiting = _waiting_tasks(package)
    if waiting:
        yield f"waits in the queue: task {join_names(waiting, _MAX_SHOWN)}", f"roost kill {waiting[0]}"
    for id, lab in _tasks_of_lost_queues(package):
        fix = f"`roost kill {id}` there; a lost queue: `roost lab rebuild --take-over {quote(lab)}` first"
        yield f"waits in the queue of {lab}: task {id}", fix


def _uses_by_reader(kind: TaskKind, folder: SessionFolder) -> Iterator[_Reason]:
    """Yields why a task that only reads the package keeps it from being removed."""
    name = f"{TASK_KINDS[kind].noun} ({folder.path.relative_to(folder.package_path)})"
    for task in resolve.unfinished_tasks(folder.path):
        yield f"is read by the {name}, task {task.label}, which is {task.state}", f"roost stop {task.label}"
    if folder.sessions() and folder.sessions()[-1].is_live:
        yield f"is read by the {name}", f"roost stop {quote(str(folder.path))}"


def _waiting_tasks(package: Path) -> list[str]:
    return [task.id for task in resolve.unfinished_tasks(package)]


def _tasks_of_lost_queues(package: Path) -> Iterator[tuple[str, str]]:
    """Yields the tasks that wait according to the package alone, as their queue is another one, or is not
    there."""
    own = task_file.lab_name(state_folder.lab_folder()) if resolve.has_queue() else None
    begun: dict[str, int] = {}
    folders = [package, *(folder.path for _, folder in session_folder.find_all(package))]
    for session in itertools.chain(*(sessions.read_all(one / session_folder.FOLDER) for one in folders)):
        begun[str(session.request.task)] = int(session.request.attempt)
    for one in task_file.read_all(package):
        # The file is written when the task becomes pending again: a later attempt is known by its session.
        is_pending = one.task.state == PENDING and begun.get(one.task.id, 0) <= one.task.attempt
        if is_pending and one.is_original and one.lab and one.lab != own:
            yield one.task.id, one.lab.partition(":")[2]


def _foreign(package: Path) -> Iterator[_Reason]:
    """Yields why the operating system would not let this user rename the package."""
    for folder in (package, package.parent):
        if not os.access(folder, os.W_OK | os.X_OK):
            name = owner(folder)
            yield f"cannot be changed by this user: {folder} belongs to {name}", f"ask {name}"


def owner(path: Path) -> str:
    """Returns the name of the owner of a file."""
    try:
        return path.owner()
    except (KeyError, OSError):
        return "another user"


class Dependents:
    """What other packages need of those that are to be removed.

    Args:
        leaving: All packages that are to be removed: what one of them needs counts for nothing.
    """

    def __init__(self, leaving: Iterable[Path]) -> None:
        self._leaving = {os.path.realpath(one) for one in leaving}
        self._forks: dict[Path, dict[str, list[str]]] = {}
        self._sources: list[tuple[str, str]] | None = None

    def of(self, package: Path) -> Iterator[_Reason]:
        """Yields what needs a package."""
        for name in self._forks_of(package):
            fork = package.parent / name
            if os.path.realpath(fork) not in self._leaving and not _has_own_copy(fork):
                yield f"is the parent of {name}, which has no checkpoint of its own", "remove that one, too"
        real = os.path.realpath(package)
        for source, task in self._waiting_sources():
            if source == real or source.startswith(f"{real}/"):
                yield f"has the initial weights of task {task}, which waits", f"roost kill {task}"

    def _forks_of(self, package: Path) -> list[str]:
        folder = package.parent
        if folder not in self._forks:
            found: dict[str, list[str]] = {}
            for name, entry in entries(folder).items():
                if entry.summary.parent is not None:
                    found.setdefault(entry.summary.parent, []).append(name)
            self._forks[folder] = found
        return self._forks[folder].get(package_schema.printable(package.name), [])

    def _waiting_sources(self) -> list[tuple[str, str]]:
        """Returns the real paths of ``init_from`` of all tasks that wait, with the task's id."""
        if self._sources is None:
            self._sources = list(self._read_sources())
        return self._sources

    def _read_sources(self) -> Iterator[tuple[str, str]]:
        if not resolve.has_queue():
            return
        with QueueStore.open() as store:
            waiting = store.tasks(states=(PENDING, *LIVE))
        for task in waiting:
            if os.path.realpath(task.package) not in self._leaving:
                for path in _initial_weights(Path(task.package)):
                    yield path, task.id


def _has_own_copy(fork: Path) -> bool:
    """Whether a fork has a checkpoint, or the user has decided that it needs none."""
    with contextlib.suppress(OSError):
        if checkpoint.ids(fork / "Checkpoints"):
            return True
    return bool(pruning.read_all(fork))


def _initial_weights(package: Path) -> Iterator[str]:
    """Yields the real paths that the setting ``init_from`` of a package names."""
    folder = PackageFolder(package)
    try:
        given: Any = folder.args.get("init_from")
        project = folder.project
    except (RoostError, OSError):
        return
    items: Iterable[Any] = given if isinstance(given, list) else [given]
    for one in items:
        text = one.get("path") if isinstance(one, dict) else one
        if isinstance(text, str):
            path = os.path.expanduser(text.replace("${project}", str(project)))  # noqa: PTH111  - never raises
            with contextlib.suppress(ValueError):  # a NUL
                yield os.path.realpath(project / path)
