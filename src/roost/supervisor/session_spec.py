"""The session spec: what a supervisor runs, under which limits, and where it writes."""

# Standard library only

from __future__ import annotations

import json
from typing import NamedTuple

from roost.supervisor.limits import SessionLimits


class SessionSpec(NamedTuple):
    """One session. All paths are absolute. A named tuple for the same reason as `SessionLimits`.

    The names of the fields are the keys of the JSON on the guard's stdin.
    """

    argv: list[str]
    cwd: str
    env: dict[str, str]
    """The complete environment of the worker; the supervisor adds the variables of
    `roost.base.system.worker_protocol`."""
    package: str
    session: int
    output: str
    session_file: str
    token: str
    """Random hex digits in the environment of every process of the run, except those that clear their
    environment. With the token `processes.abandoned_processes` finds the processes of a run whose guard and
    supervisor are both gone."""
    limits: SessionLimits = SessionLimits()
    request_file: str = ""
    """The request file of the session, if it is to be made durable together with the first record."""
    progress: str = ""
    """The progress record that is checked for new steps; empty: only output counts as progress."""
    stacks: str = ""
    """The file to which the stacks of a stalled run are appended; empty: no stacks are taken."""
    seal: str = ""
    """The file into which the guard writes the digests of what the session wrote
    (`roost.package.seals.session_seal`); empty: none."""
    owner: str = ""
    """The owner file of the package, which the supervisor renews (`roost.package.owner`); empty: none."""
    system: str = ""
    """The file for the metrics of cards, processes and host (`roost.package.results.system_metrics`); empty:
    none."""
    samples: str = ""
    """The folder with the samples of this machine (`roost.devices.sampling`)."""
    card_ids: tuple[str, ...] = ()
    """The cards of which the session holds leases, in the order of its devices."""
    cgroup: bool = True
    """Whether the run gets a cgroup where one can be created; without it, its processes are found by
    parent."""
    terminal: str = ""
    """The terminal that the worker gets as stdin, stdout and stderr; empty: /dev/null and the output file."""
    lock_fd: int | None = None
    """An inherited descriptor that holds the package's flock; None for a task that takes no lock."""
    lease_fds: tuple[int, ...] = ()
    """Inherited descriptors that hold the leases of the cards. Guard and supervisor keep them; the worker
    gets none, since processes that it leaves behind must not keep a card."""
    core_ids: tuple[int, ...] = ()
    """The CPU cores to which all processes of the session are bound; empty: all."""
    ranks: tuple[dict[str, str], ...] = ()
    """The environment variables of each rank of this machine, in addition to ``env``; empty: a single
    worker."""
    is_command: bool = False
    """Whether the session runs a command of the user instead of a worker: the exit code is its only
    report."""
    is_launcher: bool = False
    """Whether the worker only starts the ranks, as torchrun does, with descriptors of its own: the ranks
    report by the path of the pipe."""
    is_noticed: bool = False
    """Whether the guard sends the notice of the run's end (`roost.supervisor.notices`). For queued tasks the
    lab does."""
    remote_wait_seconds: float | None = None
    """How long the guard waits at the end for the last upload to the remote copy; None: there is none."""
    remote_deadline: float | None = None
    """When the machine ends, in unix seconds; the session itself has to end so much earlier that the last
    upload has time."""
    restart: int = 0
    """How many times the guard may start the next session automatically after one has crashed or failed."""
    restarted: int = 0
    """How many times the guard has done so."""
    ready_fd: int | None = None
    """Receives the supervisor's pid, as a line, once the session is recorded and the worker started."""

    def to_json(self) -> str:
        """Returns the text that `from_json` reads."""
        return json.dumps(self._asdict() | {"limits": self.limits._asdict()})

    @classmethod
    def from_json(cls, text: str | bytes) -> SessionSpec:
        """Reads a spec. Raises ValueError or TypeError if the text is not one."""
        fields = json.loads(text)
        fields["limits"] = SessionLimits(**fields.get("limits", {}))
        for name in ("ranks", "lease_fds", "core_ids", "card_ids"):
            fields[name] = tuple(fields.get(name, ()))
        return cls(**fields)
