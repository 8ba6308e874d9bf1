"""Ends what is left of sessions whose guard and supervisor were both killed, before a new session begins.

What has a cgroup is ended whole. What has none is found by the token in its environment; a process that
emptied its environment and whose parents are gone is then not found: nothing tells where it came from.
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
"""How many must find nobody: a process that forks and ends hundreds of times a second slips past one."""


def kill_abandoned(tokens: Iterable[str], cgroups: Iterable[str] = ()) -> list[int]:
    """Kills every process of the sessions, with everything below it; gives the pids that carried a token.

    The caller has made sure that guard and supervisor of each live no more. Neither the caller nor what it
    descends from is touched: a `roost` started inside of a run carries that run's token too.

    Args:
        tokens: Those of the sessions; what cannot be a token is passed over.
        cgroups: Their groups, as recorded; a path that `lab.cgroup` cannot have made is passed over.
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
    """Stops who carries a token, until a sweep meets nobody new: what is stopped cannot fork away."""
    found: set[int] = set()
    while new := set(_stop_each(wanted, found | spared)):
        found |= new
    return found


def _stop_each(wanted: list[bytes], spared: set[int]) -> Iterator[int]:
    """Stops our user's processes with one of these variables in their environment, each when it is found."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in sorted(set(pids) - spared, reverse=True):  # the youngest first: they may be about to fork away
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError), _stopper(pid) as stop:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
                is_ours = os.fstat(file.fileno()).st_uid == os.getuid()
            if is_ours and not set(wanted).isdisjoint(variables):
                stop()
                yield pid


@contextlib.contextmanager
def _stopper(pid: int) -> Iterator[Callable[[], None]]:
    """What stops exactly this process, though its pid may be another's by then. Where that cannot be had (an
    old kernel, a container that forbids pidfds) it goes by the pid."""
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
    """The caller and what it descends from."""
    line, pid = set(), os.getpid()
    while pid and pid not in line:
        line.add(pid)
        stat = process_identity.read_stat(pid)
        pid = stat.parent_pid if stat is not None else 0
    return line
