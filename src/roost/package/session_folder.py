"""A session folder: the folder whose lock, sessions and output the sessions of a task use.

Of a task that trains it is the package. Of a task that reads a package (`roost.package.kinds.TASK_KINDS`) it
is a folder of its own inside the package, so that several such tasks may run beside the package's training::

    <package>/analyzers/<n>/    or another folder of `KindTraits`; made when the task is submitted
        request.json            what was requested; never changes
        lock                    held while a session of the folder runs
        sessions/               as in a package: each attempt of the task is a session
        system/  _output.txt  progress
"""

# Not durable: creates the lock of a new folder

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.base.errors import NotFound, Refused, RoostError
from roost.package import package_name, sessions
from roost.package.kinds import TASK_KINDS, TaskKind
from roost.package.sessions import Session

REQUEST = "request.json"
FOLDER = "sessions"
_LOCK_WAIT_SECONDS = 10.0
"""How long the lock of a killed session is waited for: its remaining processes still hold it. torch's loader
workers check every 5 s whether their parent exists. (roost's own workers end with it, except on macOS;
workers of a project's own loader do not.)"""


class SessionFolder:
    """A session folder.

    Args:
        path: The folder.
        package_path: The package that the sessions train or read; of a package, the same folder.
    """

    def __init__(self, path: Path, package_path: Path) -> None:
        self.path, self.package_path = path, package_path

    @property
    def is_package(self) -> bool:
        """Whether the folder is the package itself."""
        return self.path == self.package_path

    @property
    def output(self) -> Path:
        """The file with the output of the worker, as bytes."""
        return self.path / "_output.txt"

    @property
    def progress(self) -> Path:
        """The file of `roost.package.live_progress`."""
        return self.path / "progress"

    @property
    def session_files(self) -> Path:
        """The folder with the request files and records of the sessions."""
        return self.path / FOLDER

    def sessions(self) -> list[Session]:
        """Returns all sessions, the oldest first."""
        return sessions.read_all(self.session_files)

    @property
    def state(self) -> str:
        """The state of the newest session; ``new`` without one."""
        found = self.sessions()
        return found[-1].state if found else "new"

    def new_session(self, request: Mapping[str, Any], *, is_durable: bool = True) -> int:
        """Adds a session and returns its number, see `sessions.write_request`. The caller must hold the
        lock."""
        folders = (self.path, self.session_files, self.path / "system", self.path / "blackbox")
        for folder in (*folders, *self.path.glob("profile/*")):
            if folder.is_dir():
                durable.sweep(folder)  # temporary files of a killed process
        return sessions.write_request(self.session_files, dict(request), is_durable=is_durable)

    def lock(self) -> int:
        """Takes the lock of the folder; returns a descriptor, which holds the lock until its last copy is
        closed.

        Raises:
            Refused: Another process holds it.
        """
        fd = self._opened_lock()
        deadline = time.monotonic() + _LOCK_WAIT_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                # The kernel is still ending the processes of a killed session: the lock will be free soon.
                if self.state in ("running", "starting") or time.monotonic() > deadline:
                    os.close(fd)
                    raise self._in_use() from None
                time.sleep(0.01)

    def _opened_lock(self) -> int:
        """Opens the lock file: never through a link, and without waiting for the other end of a FIFO."""
        path = self.path / sessions.LOCK_NAME
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise
            raise _lock_file_error(path) from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise _lock_file_error(path)
        return fd

    def _in_use(self) -> Refused:
        found = self.sessions()
        if not self.is_package:
            fix = "`roost attach` with this folder shows it; type the command again when it has ended"
            return Refused("the folder of this task is in use by a session", where=self.path, fix=fix)
        if not found:
            return Refused("the package is in use", where=self.path, fix="try again")
        record = found[-1].record or found[-1].request
        holder = f"session {found[-1].number} (host {record.host}, pid {record.pid})"
        if found[-1].state not in ("running", "starting"):
            fix = "`roost continue` ends it; if it does not, `fuser lock` in the package names it"
            return Refused(
                f"the package is in use by a remaining process of {holder}", where=self.path, fix=fix
            )
        fix = "watch it with `roost logs -f`, or end it with `roost stop`"
        if found[-1].is_python:
            is_own = (record.host, record.pid) == (socket.gethostname(), os.getpid())
            holder = f"this program, session {found[-1].number}" if is_own else f"a Python program, {holder}"
            fix = "let it leave its `with` block, or end it"
            if is_own:
                fix = "call `finish` of the run before, or leave its `with` block"
        return Refused(f"the package is in use by {holder}", where=self.path, fix=fix)


def create(
    package: Path, kind: TaskKind, request: Mapping[str, Any], *, name: str | None = None
) -> SessionFolder:
    """Makes the session folder of a new task that reads a package.

    Args:
        package: The package.
        kind: The kind of the task.
        request: The content of request.json, without the kind.
        name: Its name; None: the next number.

    Raises:
        Refused: The folder cannot be made, and what was made of it is removed again; or the name exists.
    """
    parent = TASK_KINDS[kind].folder
    assert parent is not None, "this kind has no folder of its own"
    root, path = package / parent, None
    try:
        if name is None:
            path = package_name.make_numbered(root)
            _fill(path, kind, request)
        else:
            durable.make_folder(root, exist_ok=True)
            path = root / name
            with package_name.staged(root, name, taken=_taken) as made:
                _fill(made, kind, request)
    except OSError as error:
        if path is not None and name is None:
            durable.discard(path)
        cause = error.strerror or error
        fix = "copy the package to where you may write"
        if kind is not TaskKind.EVALUATE:  # the others write into no package at a terminal
            fix += ", or run the command without the lab"
        raise Refused(f"the folder of the task cannot be made: {cause}", where=root, fix=fix) from error
    return SessionFolder(path, package)


def _fill(path: Path, kind: TaskKind, request: Mapping[str, Any]) -> None:
    durable.make_folder(path / FOLDER)
    (path / sessions.LOCK_NAME).touch()
    durable.write(path / REQUEST, sessions.to_json({"kind": kind, **request}))


def _taken(root: Path, name: str) -> Refused:
    return Refused(
        "another command has begun one of this name", received=name, where=root, fix="type yours again"
    )


def open_folder(path: Path, package: Path) -> SessionFolder:
    """Opens the session folder of a task that reads a package.

    Raises:
        NotFound: There is no such folder.
    """
    if not (path / REQUEST).is_file():
        raise NotFound("the folder of this task does not exist", received=str(path), fix="see `roost tasks`")
    return SessionFolder(path, package)


def find_all(package: Path) -> Iterator[tuple[TaskKind, SessionFolder]]:
    """Yields the session folders inside a package, with the kinds of their tasks."""
    for kind, traits in TASK_KINDS.items():
        if traits.folder is None:
            continue
        root = package / traits.folder
        names = _names(root) if traits.has_names else map(str, package_name.numbers(root))
        for name in names:
            path = root / name
            if (path / FOLDER).is_dir():  # a prediction at a terminal has none
                yield kind, SessionFolder(path, package)


def _names(root: Path) -> list[str]:
    try:
        return sorted(
            path.name for path in root.iterdir() if path.is_dir() and not durable.is_staging(path.name)
        )
    except FileNotFoundError:
        return []


def find_at(path: Path) -> SessionFolder | None:
    """Returns the session folder of a task that reads a package, if the path is that of one."""
    path = path.absolute()
    kinds = {traits.folder: traits for traits in TASK_KINDS.values() if traits.folder is not None}
    traits = kinds.get(path.parent.name)
    is_named = traits is not None and (traits.has_names or path.name.isdecimal())
    is_one = is_named and not (path / "args.json").exists()
    return SessionFolder(path, path.parent.parent) if is_one and (path / FOLDER).is_dir() else None


def _lock_file_error(path: Path) -> RoostError:
    return RoostError(
        "the package's lock is not a plain file", where=path, fix="rename it: roost creates a new one"
    )
