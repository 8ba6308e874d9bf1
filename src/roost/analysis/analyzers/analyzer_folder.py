"""The session folder of an analyzer, ``<package>/analyzers/<n>/``, and what its request holds."""

from __future__ import annotations

from pathlib import Path

from roost.analysis.analyzers.call_inbox import CallInbox
from roost.package import sessions
from roost.package.kinds import TASK_KINDS, TaskKind
from roost.package.session_schema import Checked, Count, JsonFields
from roost.package.sessions import Session

NAME = str(TASK_KINDS[TaskKind.ANALYZE].folder)
"""The folder of a package that holds its analyzers."""
REQUEST, OUTPUT = "request.json", "_output.txt"
CALLS = "calls"
"""The folder of the inbox."""


class AnalyzerSessionRequest(JsonFields):
    """The fields of request.json: which model the analyzer loads, and which scripts it may run."""

    kind: str = TaskKind.ANALYZE
    checkpoint: Checked[Count | None] = None
    """The id of the checkpoint; None: the newest good one."""
    untrained: Checked[bool] = False
    """Whether the model stays as built, without the weights of a checkpoint."""
    trust: Checked[bool] = False
    """Whether pickles of the checkpoint are read that are not signed with the key of this user."""
    device: Checked[str] = "auto"
    project: Checked[str | None] = None
    """The folder of the project now; None: its recorded folder."""
    scripts: Checked[str | None] = None
    """A further script, or a further folder of scripts."""
    command: list[str] = []  # noqa: RUF012  - a default is copied when it is read
    """The command line as typed."""


def read_request(folder: Path) -> AnalyzerSessionRequest | None:
    """Reads the request of an analyzer; None if there is none."""
    found = sessions.load_json(folder / REQUEST)
    return None if found is None else AnalyzerSessionRequest.from_json(found)


def inbox(folder: Path) -> CallInbox:
    """Returns the inbox of an analyzer."""
    return CallInbox(folder / CALLS)


def newest_session(folder: Path) -> Session | None:
    """Returns the newest session of an analyzer; None before it has one."""
    try:
        found = sessions.read_all(folder / "sessions")
    except OSError:
        return None
    return found[-1] if found else None
