"""Kills the remaining processes of sessions whose guard and supervisor were both killed, before a new session
starts.

A session with a cgroup is ended whole. Without one, its processes are found by the token in their
environment. A process that cleared its environment and whose parents are gone is then not found: nothing
shows where it came from.
"""

# Standard library only

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator

from roost.base.system import process_identity
from roost.base.system.worker_protocol import TOKEN_VARIABLE
from roost.supervisor import rendezvous
from roost.supervisor.processes import cgroup
from roost.supervisor.processes.process_tree import kill_tree

_CLEAN_SWEEPS = 16
"""How many sweeps in a row must find no process: one that forks and ends hundreds of times a second escapes a
single sweep."""


def kill_abandoned(tokens: Iterable[str], cgroups: Iterable[str] = ()) -> list[int]:
    """Kills every process of the sessions, with all descendants; returns the pids that had a token.

    The caller has made sure that guard and supervisor of each session have ended. Neither the caller nor its
    ancestors are killed: a `roost` started inside a run has that run's token too.

    Args:
        tokens: The tokens of the sessions; a text that cannot be a token is skipped.
        cgroups: The recorded cgroups of the sessions; a path that `cgroup.create` cannot have made is
            skipped.
    """
    ours = _own_ancestry()
    for group in filter(cgroup.is_session_cgroup, cgroups):
        if ours.isdisjoint(cgroup.pids(group)):
            cgroup.kill(group)
            cgroup.remove(group)
    real = [token for token in tokens if cgroup.is_token(token)]
    wanted = [f"{TOKEN_VARIABLE}={token}".encode() for token in real]
    ended: set[int] = set()
    clean = 0
    while wanted and clean < _CLEAN_SWEEPS:
        found = _stop_carriers(wanted, ours | ended)
        clean = 0 if found else clean + 1
        for pid in found:
            kill_tree(pid, include_root=True)
        ended |= found
    for token in real:
        rendezvous.remove_folder(token)
    return sorted(ended)


def _stop_carriers(wanted: list[bytes], spared: set[int]) -> set[int]:
    """Stops the processes with a token until a sweep finds no new one: a stopped process cannot fork."""
    found: set[int] = set()
    while new := set(_stop_each(wanted, found | spared)):
        found |= new
    return found


def _stop_each(wanted: list[bytes], spared: set[int]) -> Iterator[int]:
    """Stops this user's processes that have one of these variables in their environment, each when it is
    found."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in sorted(set(pids) - spared, reverse=True):  # the youngest first: they may be about to fork
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError),
            _stopper(pid) as stop,
        ):
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
                is_ours = os.fstat(file.fileno()).st_uid == os.getuid()
            if is_ours and not set(wanted).isdisjoint(variables):
                stop()
                yield pid


@contextlib.contextmanager
def _stopper(pid: int) -> Iterator[Callable[[], None]]:
    """Yields a function that stops exactly this process, even if its pid is reused. Without pidfds (an old
    kernel, a container that forbids them) it uses the pid."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        yield lambda: os.kill(pid, signal.SIGSTOP)
        return
    try:
        yield lambda: signal.pidfd_send_signal(fd, signal.SIGSTOP)
    finally:
        os.close(fd)


def _own_ancestry() -> set[int]:
    """Returns the caller and its ancestors."""
    line, pid = set(), os.getpid()
    while pid and pid not in line:
        line.add(pid)
        stat = process_identity.read_stat(pid)
        pid = stat.parent_pid if stat is not None else 0
    return line
