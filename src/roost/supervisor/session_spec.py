"""What a supervisor is told: what to run, under which limits, and where to write it down."""

# Standard library only

from __future__ import annotations

import json
from typing import NamedTuple

from roost.supervisor.limits import SessionLimits


class SessionSpec(NamedTuple):
    """One session. All paths are absolute. A named tuple, as `SessionLimits` is."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    """The complete environment of the worker; the supervisor adds the variables of `base.handover`."""
    package: str
    session: int
    output: str
    session_file: str
    token: str
    """Random hex digits, in the environment of every process of the run that did not empty its own: by it
    `lab.leftovers` finds them when guard and supervisor are both gone."""
    limits: SessionLimits = SessionLimits()
    request_file: str = ""
    """The session's request, where that is yet to be made durable, with the first record."""
    progress: str = ""
    """The board that is watched for steps; empty: output alone counts as progress."""
    stacks: str = ""
    """The file that the stacks of a stalled run are appended to; empty: none are taken."""
    cgroup: bool = True
    """Whether the run gets a cgroup where one can be made; without it its processes are found by parent."""
    terminal: str = ""
    """A terminal that the worker gets as stdin, stdout and stderr; else /dev/null and the output file."""
    lock_fd: int | None = None
    """An inherited descriptor that holds the package's flock; None for what takes no lock."""
    lease_fds: tuple[int, ...] = ()
    """Inherited descriptors that hold the leases of its cards. Guard and supervisor keep them; the worker
    gets none, for what it leaves behind must not keep a card."""
    ranks: tuple[dict[str, str], ...] = ()
    """What each rank of this machine has in its environment beside ``env``; empty: there is one worker."""
    is_command: bool = False
    """Whether what runs is a command of the user, and no worker: it says by its exit code how it ended."""
    is_launcher: bool = False
    """Whether the worker only starts the ranks, as torchrun does, with descriptors of its own: they report by
    the path of the pipe."""
    is_noticed: bool = False
    """Whether the guard sends who tells of its end (`lab.notices`); of its tasks the lab tells."""
    restart: int = 0
    """How many times the guard may begin the next session by itself when one has crashed or failed."""
    restarted: int = 0
    """How many times it has done so."""
    ready_fd: int | None = None
    """Gets the supervisor's pid, as a line, when the session is recorded and the worker started."""

    def to_json(self) -> str:
        """For `from_json`."""
        return json.dumps(self._asdict() | {"limits": self.limits._asdict()})

    @classmethod
    def from_json(cls, text: str | bytes) -> SessionSpec:
        """Raises ValueError or TypeError if the text is no spec."""
        said = json.loads(text)
        said["limits"] = SessionLimits(**said.get("limits", {}))
        for name in ("ranks", "lease_fds"):
            said[name] = tuple(said.get(name, ()))
        return cls(**said)
