"""Warm starts: guards that are forked from a process which has imported torch (`torch_template`), so that
their workers need not.

There is one such process for each environment with which workers were started lately. It listens in the lab's
folder under a name for everything it was started with (`environment_key`): a process that would start a
worker with the same environment finds it there, and with any other does not. The lab's daemon keeps the
templates; without it, and in any case of doubt, a worker starts cold.
"""

# Not durable: the folder of the templates' sockets; nothing resumes from it

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from roost.base.errors import Refused
from roost.base.system import host_memory, state_folder
from roost.base.system.worker_protocol import TOKEN_VARIABLE
from roost.supervisor.forkserver import environment_key
from roost.supervisor.forkserver.forked_guard import ForkedGuard, request_guard
from roost.supervisor.forkserver.forked_worker import TOKEN_PLACEHOLDER, UNUSABLE_EXIT_CODE, WORKER_ARGUMENTS
from roost.supervisor.session_spec import SessionSpec

COLD_VARIABLE = "ROOST_COLD"
"""If set to any value, workers start cold."""
FOLDER_VARIABLE = "ROOST_WARM"
"""A folder of templates that serve several labs, instead of the lab's own."""
_MAX_TEMPLATES = 2
_MIN_FREE_BYTES = 2 << 30
"""The free memory required to start a template, which takes 0.3 GB."""
_LOADING_SECONDS = 120.0
_MAX_REMEMBERED_KEYS = 64
_UNUSABLE_SECONDS = 900.0
_ARGUMENT_PADDING = " " * 400
"""``ps`` shows the arguments of a worker in the memory of the template's arguments."""


def template_folder() -> Path:
    """Returns the folder in which templates listen."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else state_folder.lab_folder() / "warm"


def fork_guard(spec: SessionSpec, fds: Sequence[int]) -> ForkedGuard | None:
    """Forks the guard of a session from a template for its worker; None if there is none: start a guard by
    exec.

    Args:
        spec: The session.
        fds: The guard gets copies of these, as number 3, 4, …
    """
    if not _allows_warm_start(spec):
        return None
    path = template_folder() / str(_template_key(spec))
    connection = _connect(path)
    if connection is None:
        return None
    try:
        forked = request_guard(connection, fds, reports_exit=True)
    except OSError:  # there is no descriptor left: the start by exec will report it
        forked = None
    if forked is None:
        connection.close()
        with suppress(OSError):
            path.unlink()  # no other process must wait for it
    return forked


def _connect(path: Path) -> socket.socket | None:
    """Returns a connection to the template that listens there; None if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setblocking(False)  # the queue of a paused template may be full: do not wait
    try:
        # The template gets the lock, and all that the worker may know.
        state_folder.require_owner_and_mode(path.parent, 0o700)
        found = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(
                f"/proc/self/fd/{found}/{path.name}"
            )  # the path of a socket is limited to 107 bytes
        finally:
            os.close(found)
    except (OSError, Refused):
        connection.close()
        return None
    return connection


class _WarmTemplate(NamedTuple):
    """A template process that this process has started (`torch_template`)."""

    process: subprocess.Popen[bytes]
    lifetime: socket.socket
    """The template ends when this is closed, so with the process that keeps it."""
    path: Path
    began: float
    """Seconds of the monotonic clock."""

    @property
    def is_available(self) -> bool:
        """Whether it accepts requests, or will after its imports. A stale one lives as long as the guards it
        has forked."""
        is_loading = time.monotonic() - self.began < _LOADING_SECONDS
        return self.process.poll() is None and (is_loading or self.path.exists())

    def end(self) -> None:
        self.lifetime.close()
        self.process.kill()
        self.process.wait()


class WarmTemplates:
    """The warm templates that a daemon keeps, for the environments with which it has started workers last."""

    def __init__(self) -> None:
        self._started: dict[str, _WarmTemplate] = {}
        self._known_keys: deque[str] = deque(maxlen=_MAX_REMEMBERED_KEYS)
        self._unusable_until: dict[str, float] = {}
        """In seconds of the monotonic clock: a package that was half installed may be complete then."""

    def ensure_template(self, spec: SessionSpec) -> None:
        """Starts the template for the worker of a session, unless it runs, or the worker is the first of its
        kind: a second one makes a third likely. Does not wait for the template."""
        key = _template_key(spec) if _allows_warm_start(spec) else None
        if key is None or self._is_unusable(key):
            return
        if key not in self._known_keys:
            self._known_keys.append(key)
            return
        known = self._started.pop(key, None)
        if known is not None and known.process.poll() == UNUSABLE_EXIT_CODE:
            self._unusable_until[key] = (
                time.monotonic() + _UNUSABLE_SECONDS
            )  # the reason is in the daemon's log
        if known is not None and not known.is_available:
            known.end()
            known = None
        if self._is_unusable(key):
            return
        known = known or _start_template(spec, template_folder() / key)
        if known is not None:
            self._started[key] = known  # becomes the most recent one
        while len(self._started) > _MAX_TEMPLATES:
            self._end(next(iter(self._started)))

    def close(self) -> None:
        """Ends the templates; guards that they have forked continue."""
        while self._started:
            self._end(next(iter(self._started)))

    def _is_unusable(self, key: str) -> bool:
        return time.monotonic() < self._unusable_until.get(key, 0.0)

    def _end(self, key: str) -> None:
        self._started.pop(key).end()
        with suppress(OSError):  # another process has removed it already
            (template_folder() / key).unlink()


def _template_key(spec: SessionSpec) -> str | None:
    return environment_key.environment_key(spec.argv[: 1 + len(WORKER_ARGUMENTS)], spec.env)


def _allows_warm_start(spec: SessionSpec) -> bool:
    """Whether the worker may start warm: ranks and launchers have an environment of their own, a terminal
    other streams."""
    is_worker = tuple(spec.argv[1 : 1 + len(WORKER_ARGUMENTS)]) == WORKER_ARGUMENTS and not (
        spec.is_command or spec.is_launcher
    )
    is_cold = bool(spec.env.get(COLD_VARIABLE) or os.environ.get(COLD_VARIABLE))
    return sys.platform == "linux" and is_worker and not (spec.ranks or spec.terminal or is_cold)


def _start_template(spec: SessionSpec, path: Path) -> _WarmTemplate | None:
    running = _connect(path)
    if running is not None:  # the template of another daemon serves as well
        running.close()
        return None
    if (host_memory.available_bytes() or 0) < _MIN_FREE_BYTES:
        return None
    own_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        process = subprocess.Popen(
            [
                spec.argv[0],
                "-P",
                "-m",
                "roost.supervisor.forkserver.torch_template",
                str(path),
                _ARGUMENT_PADDING,
            ],
            stdin=child_end.fileno(),
            stdout=subprocess.DEVNULL,
            cwd="/",
            env=environment_key.startup_variables(spec.env) | {TOKEN_VARIABLE: TOKEN_PLACEHOLDER},
            start_new_session=True,
        )
    except OSError:  # no process, no memory: workers start cold
        own_end.close()
        return None
    finally:
        child_end.close()
    return _WarmTemplate(process, own_end, path, time.monotonic())
