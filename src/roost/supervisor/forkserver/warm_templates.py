"""Warm starts: guards that are forked from a process which has imported torch (`lab.loaded`), so that their
workers need not.

There is one such process for each environment that workers were started with lately. It listens in the lab's
folder under a name for all that it was started with (`lab.surroundings`): whoever would start a worker with
the same finds it there, and with anything else does not. The lab's daemon keeps them; without it, and where
anything is in doubt, a worker starts cold.
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
from roost.supervisor.forkserver.forked_worker import UNUSABLE_EXIT_CODE, TOKEN_PLACEHOLDER, WORKER_ARGUMENTS
from roost.supervisor.session_spec import SessionSpec

COLD_VARIABLE = "ROOST_COLD"
"""Where it is set to anything, a worker starts cold."""
FOLDER_VARIABLE = "ROOST_WARM"
"""A folder where templates listen that serve several labs, instead of the lab's own."""
_MAX_TEMPLATES = 2
_MIN_FREE_BYTES = 2 << 30
"""Of free memory: a template takes 0.3 GB."""
_LOADING_SECONDS = 120.0
_MAX_REMEMBERED_KEYS = 64
_UNUSABLE_SECONDS = 900.0
_ARGUMENT_PADDING = " " * 400
"""``ps`` shows the arguments of a worker where those of the template stood."""


def template_folder() -> Path:
    """Where templates listen."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else state_folder.lab_folder() / "warm"


def fork_guard(spec: SessionSpec, fds: Sequence[int]) -> ForkedGuard | None:
    """Forks the guard of a session from a template for its worker; None: there is none, start one as usual.

    Args:
        spec: The session.
        fds: The guard gets copies of these, as number 3, 4, …
    """
    if not _allows_warm_start(spec):
        return None
    path = template_folder() / str(_template_key(spec))
    asked = _connect(path)
    if asked is None:
        return None
    try:
        forked = request_guard(asked, fds, tells=True)
    except OSError:  # there is no descriptor left: whoever asks next will say so
        forked = None
    if forked is None:
        asked.close()
        with suppress(OSError):
            path.unlink()  # nobody else shall wait for it
    return forked


def _connect(path: Path) -> socket.socket | None:
    """A connection to the template that listens there; None if none does."""
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked.setblocking(False)  # its queue may be full: it is paused, and who asks must not be
    try:
        state_folder.require_owner_and_mode(
            path.parent, 0o700
        )  # it will be handed the lock, and all that the worker may know
        found = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            asked.connect(f"/proc/self/fd/{found}/{path.name}")  # a socket's name may have 107 letters
        finally:
            os.close(found)
    except (OSError, Refused):
        asked.close()
        return None
    return asked


class _WarmTemplate(NamedTuple):
    """A process that we have started, in which warm starts are forked (`lab.loaded`)."""

    process: subprocess.Popen[bytes]
    life: socket.socket
    """It ends when this is closed, so with whoever keeps it."""
    path: Path
    began: float
    """Seconds of the monotonic clock."""

    @property
    def is_there(self) -> bool:
        """Whether it can be asked, or will be. One that is stale lives on as long as what it has forked."""
        is_loading = time.monotonic() - self.began < _LOADING_SECONDS
        return self.process.poll() is None and (is_loading or self.path.exists())

    def end(self) -> None:
        self.life.close()
        self.process.kill()
        self.process.wait()


class WarmTemplates:
    """The warm templates that a daemon keeps, for the environments that it has started workers with last."""

    def __init__(self) -> None:
        self._started: dict[str, _WarmTemplate] = {}
        self._seen: deque[str] = deque(maxlen=_MAX_REMEMBERED_KEYS)
        self._hopeless: dict[str, float] = {}
        """Until when, in seconds of the monotonic clock: a package that was half installed is whole then."""

    def keep(self, spec: SessionSpec) -> None:
        """Starts the one for the worker of a session, unless it is there, or the worker is the first of its
        kind: a second one makes a third likely. Nobody waits for it."""
        key = _template_key(spec) if _allows_warm_start(spec) else None
        if key is None or self._is_hopeless(key):
            return
        if key not in self._seen:
            self._seen.append(key)
            return
        known = self._started.pop(key, None)
        if known is not None and known.process.poll() == UNUSABLE_EXIT_CODE:
            self._hopeless[key] = time.monotonic() + _UNUSABLE_SECONDS  # why stands in the daemon's log
        if known is not None and not known.is_there:
            known.end()
            known = None
        if self._is_hopeless(key):
            return
        known = known or _start_template(spec, template_folder() / key)
        if known is not None:
            self._started[key] = known  # as the latest
        while len(self._started) > _MAX_TEMPLATES:
            self._end(next(iter(self._started)))

    def close(self) -> None:
        """Ends them; what they have forked goes on."""
        while self._started:
            self._end(next(iter(self._started)))

    def _is_hopeless(self, key: str) -> bool:
        return time.monotonic() < self._hopeless.get(key, 0.0)

    def _end(self, key: str) -> None:
        self._started.pop(key).end()
        with suppress(OSError):  # it was nobody's any more, and is gone
            (template_folder() / key).unlink()


def _template_key(spec: SessionSpec) -> str | None:
    return environment_key.environment_key(spec.argv[: 1 + len(WORKER_ARGUMENTS)], spec.env)


def _allows_warm_start(spec: SessionSpec) -> bool:
    """Ranks and launchers have an environment of their own, a terminal makes other streams."""
    is_worker = tuple(spec.argv[1 : 1 + len(WORKER_ARGUMENTS)]) == WORKER_ARGUMENTS and not (spec.is_command or spec.is_launcher)
    is_cold = bool(spec.env.get(COLD_VARIABLE) or os.environ.get(COLD_VARIABLE))
    return sys.platform == "linux" and is_worker and not (spec.ranks or spec.terminal or is_cold)


def _start_template(spec: SessionSpec, path: Path) -> _WarmTemplate | None:
    there = _connect(path)
    if there is not None:  # somebody else's will do
        there.close()
        return None
    if (host_memory.available_bytes() or 0) < _MIN_FREE_BYTES:
        return None
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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
            stdin=its.fileno(),
            stdout=subprocess.DEVNULL,
            cwd="/",
            env=environment_key.startup_variables(spec.env) | {TOKEN_VARIABLE: TOKEN_PLACEHOLDER},
            start_new_session=True,
        )
    except OSError:  # no process, no memory: without it all goes on more slowly
        ours.close()
        return None
    finally:
        its.close()
    return _WarmTemplate(process, ours, path, time.monotonic())
