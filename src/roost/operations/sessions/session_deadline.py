"""The time by which a session must have ended: from its settings, from Slurm, and from the environment."""

from __future__ import annotations

import functools
import os
import subprocess
import time
from collections.abc import Mapping
from typing import NamedTuple

from roost.base.errors import Refused, UsageError
from roost.base.interval import parse_duration
from roost.base.system.worker_protocol import DEADLINE_VARIABLE
from roost.base.text.durations import format_duration
from roost.base.text.timestamps import format_clock, parse_timestamp
from roost.config.sections.limits import LimitSettings

_SLURM_END, _SLURM_JOB = "SLURM_JOB_END_TIME", "SLURM_JOB_ID"
_ASK_SECONDS = 5.0
_NO_LIMIT_WORDS = ("", "N/A", "NONE", "UNKNOWN")
"""What Slurm answers for a job without a time limit."""


class SessionDeadline(NamedTuple):
    """The time by which a session must have ended."""

    at: float | None
    """Unix seconds; None: no limit."""
    notes: list[str]
    """Notes for the user."""

    def seconds_left(self) -> float | None:
        """Returns the seconds until the deadline; None without one."""
        return None if self.at is None else self.at - time.time()


def deadline_of(limits: LimitSettings, environment: Mapping[str, str] = os.environ) -> SessionDeadline:
    """Returns the earliest of: ``limits.wall_time`` from now, the end of the Slurm job of this process, and
    ROOST_DEADLINE.

    Raises:
        Refused: The deadline is past.
        UsageError: A variable does not hold a time.
    """
    now = time.time()
    found: dict[str, float] = {}
    if limits.wall_time is not None:
        found["limits.wall_time"] = now + parse_duration(limits.wall_time, setting="limits.wall_time")
    for name in (DEADLINE_VARIABLE, _SLURM_END):
        if given := environment.get(name):
            found[name] = parse_timestamp(given, setting=name)
    notes = []
    job = environment.get(_SLURM_JOB)
    if job and _SLURM_END not in found:
        end, why = _job_end(job)
        if end is not None:
            found[f"Slurm job {job}"] = end
        elif why:
            notes.append(f"{why}; if it has a time limit, give it by --time-limit or in {DEADLINE_VARIABLE}")
    if not found:
        return SessionDeadline(None, notes)
    source = min(found, key=lambda name: found[name])
    at = found[source]
    if at <= now:
        raise Refused(
            f"the session would end before it begins: the deadline, {format_clock(at)}, was "
            f"{format_duration(now - at)} ago",
            setting=source,
            fix=f"unset {source}, or set it again" if source == DEADLINE_VARIABLE else "request a new job",
        )
    if source != "limits.wall_time":
        notes.append(f"its time limit is from {source}")  # the run itself reports the time
    return SessionDeadline(at, notes)


@functools.cache
def _job_end(job: str) -> tuple[float | None, str]:
    """Returns the end of a Slurm job as its controller reports it; None if it has no limit, or if the end is
    unknown, then with the reason. The controller is queried once per process."""
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%e"]
    # The user's environment may set another format of times.
    environment = {**os.environ, "SLURM_TIME_FORMAT": "standard"}
    unknown = f"the end of Slurm job {job} is not known"
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_SECONDS, env=environment, check=True
        ).stdout.split()
    except FileNotFoundError:
        return None, f"{unknown}: there is no squeue"
    except subprocess.TimeoutExpired:
        return None, f"{unknown}: squeue did not answer within {_ASK_SECONDS:g} s"
    except (OSError, subprocess.CalledProcessError) as error:
        detail = (getattr(error, "stderr", None) or str(error)).strip()
        return None, f"{unknown}: squeue failed ({detail})"
    word = answer[0] if answer else ""
    if word.upper() in _NO_LIMIT_WORDS:
        return None, ""
    try:
        return parse_timestamp(word, setting="squeue"), ""
    except UsageError:
        return None, f"{unknown}: squeue answered {word!r}"
