"""The template processes that the lab's daemon keeps: one for guards, and at most two for workers
(`roost.supervisor.forkserver.template_process`)."""

# Not durable: the folder of the templates' sockets; nothing resumes from it

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from roost.base.system import host_memory
from roost.base.system.process_title import TITLE_ROOM
from roost.base.system.worker_protocol import TOKEN_VARIABLE
from roost.supervisor.forkserver import environment_key, template_client, template_process
from roost.supervisor.forkserver.forked_worker import TOKEN_PLACEHOLDER, UNUSABLE_EXIT_CODE
from roost.supervisor.session_spec import SessionSpec

_GUARD_TEMPLATE_COMMAND = (sys.executable, "-I", "-S", str(Path(template_process.__file__).resolve()))
"""Starts a template for guards; its socket follows."""
_WORKER_TEMPLATE_ARGUMENTS = ("-P", "-m", "roost.supervisor.forkserver.torch_template")
_GUARDS_SUFFIX = ".guards"
_MAX_WORKER_TEMPLATES = 2
_MIN_FREE_BYTES = 2 << 30
"""The free memory required to start a template for workers."""
_GUARD_LOADING_SECONDS, _WORKER_LOADING_SECONDS = 5.0, 120.0
_MAX_REMEMBERED_TEMPLATES = 64
_UNUSABLE_SECONDS = 900.0


class _StartedTemplate(NamedTuple):
    """A template process that this process has started."""

    process: subprocess.Popen[bytes]
    lifetime: socket.socket
    """The template ends when this is closed, so with the process that keeps it."""
    path: Path
    loaded_by: float
    """When it must listen at the latest: seconds of the monotonic clock."""

    @property
    def is_available(self) -> bool:
        """Whether it accepts requests, or will after its imports. A stale one lives as long as the guards it
        has forked."""
        has_socket = os.path.exists(self.path)  # noqa: PTH110  - `Path.exists` may raise an error
        return self.process.poll() is None and (time.monotonic() < self.loaded_by or has_socket)

    def end(self) -> None:
        """Ends the template; guards that it has forked continue."""
        self.lifetime.close()
        self.process.kill()
        self.process.wait()
        _remove_abandoned_socket(self.path)


class TemplatePool:
    """The templates of a daemon. If one fails, guards and workers start without it; guards that it has forked
    continue.

    Only this process uses the template for guards. Those for workers, which have torch imported, serve every
    process of the user that would start a worker in the same environment.
    """

    def __init__(self) -> None:
        # Daemons in several containers may share the folder and have the same pid.
        name = f"{os.getpid()}-{os.urandom(4).hex()}{_GUARDS_SUFFIX}"
        self.guard_template = template_client.template_folder() / name
        """Where the template for guards listens."""
        self._guards: _StartedTemplate | None = None
        self._workers: dict[Path, _StartedTemplate] = {}
        """By path, the most recently used one last."""
        self._seen: deque[Path] = deque(maxlen=_MAX_REMEMBERED_TEMPLATES)
        self._unusable_until: dict[Path, float] = {}
        """In seconds of the monotonic clock: a package that was half installed may be complete then."""

    @property
    def fds(self) -> dict[int, str]:
        """Descriptors that become readable when a template ends, which is then to be reaped."""
        return {one.lifetime.fileno(): "" for one in self._started() if one.process.returncode is None}

    def reap(self) -> None:
        """Reaps templates that have ended: a zombie would remain until the next start of their kind."""
        for template in self._started():
            template.process.poll()

    def open(self) -> None:
        """Starts the template for guards, unless it runs. Does not wait for it."""
        if self._guards is not None and not self._guards.is_available:
            if (self._guards.process.poll() or 0) > 0:  # it could not listen, for example
                self._unusable_until[self.guard_template] = time.monotonic() + _UNUSABLE_SECONDS
            self._guards.end()
            self._guards = None
        if self._guards is None and not self._is_unusable(self.guard_template):
            for path in self.guard_template.parent.glob(f"*{_GUARDS_SUFFIX}"):
                _remove_abandoned_socket(path)  # of daemons that were killed together with their templates
            self._guards = _start(_GUARD_TEMPLATE_COMMAND, None, self.guard_template, _GUARD_LOADING_SECONDS)

    def prepare(self, spec: SessionSpec) -> None:
        """Prepares the next start of a session like one that was started: starts its templates again if they
        have ended. Does not wait for them."""
        self.open()
        path = template_client.worker_template(spec)
        if path is None or self._is_unusable(path):
            return
        if path not in self._seen:  # the first of its kind: a second one makes a third likely
            self._seen.append(path)
            return
        known = self._workers.pop(path, None)
        if (
            known is not None and known.process.poll() == UNUSABLE_EXIT_CODE
        ):  # the reason is in the daemon's log
            self._unusable_until[path] = time.monotonic() + _UNUSABLE_SECONDS
        if known is not None and not known.is_available:
            known.end()
            known = None
        if self._is_unusable(path):
            return
        known = known or _start_worker_template(spec, path)
        if known is not None:
            self._workers[path] = known  # becomes the most recent one
        while len(self._workers) > _MAX_WORKER_TEMPLATES:
            self._workers.pop(next(iter(self._workers))).end()

    def close(self) -> None:
        """Ends the templates; guards that they have forked continue."""
        for template in self._started():
            template.end()
        self._guards = None
        self._workers.clear()

    def _started(self) -> list[_StartedTemplate]:
        guards = [] if self._guards is None else [self._guards]
        return [*guards, *self._workers.values()]

    def _is_unusable(self, path: Path) -> bool:
        return time.monotonic() < self._unusable_until.get(path, 0.0)


def _remove_abandoned_socket(path: Path) -> None:
    """Removes the socket of a template that has ended; keeps that of another daemon's template."""
    if not template_client.is_listening(path):
        with suppress(OSError):  # there is none, or another process has removed it
            path.unlink()


def _start_worker_template(spec: SessionSpec, path: Path) -> _StartedTemplate | None:
    if template_client.is_listening(path):  # the template of another daemon serves as well
        return None
    if (host_memory.available_bytes() or 0) < _MIN_FREE_BYTES:
        return None
    env = environment_key.startup_variables(spec.env) | {TOKEN_VARIABLE: TOKEN_PLACEHOLDER}
    return _start((spec.argv[0], *_WORKER_TEMPLATE_ARGUMENTS), env, path, _WORKER_LOADING_SECONDS)


def _start(
    command: Sequence[str], env: Mapping[str, str] | None, path: Path, loading_seconds: float
) -> _StartedTemplate | None:
    """Starts a template that will listen at a path; None if it cannot be started."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return None
    own_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        process = subprocess.Popen(
            [*command, str(path), TITLE_ROOM],
            stdin=child_end.fileno(),
            stdout=subprocess.DEVNULL,
            cwd="/",
            env=env,
            start_new_session=True,
        )
    except OSError:  # no process, no memory: guards and workers start by exec, more slowly
        own_end.close()
        return None
    finally:
        child_end.close()
    return _StartedTemplate(process, own_end, path, time.monotonic() + loading_seconds)
