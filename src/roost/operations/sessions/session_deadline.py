"""By when a session must have ended: what was asked for, and what the surroundings say."""

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
"""What Slurm says of a job without a time limit."""


class SessionDeadline(NamedTuple):
    """When a session must have ended."""

    at: float | None
    """Unix seconds; None: there is no limit."""
    notes: list[str]
    """What a person should hear about it."""

    def seconds_left(self) -> float | None:
        """Those that are left."""
        return None if self.at is None else self.at - time.time()


def deadline_of(limits: LimitSettings, environment: Mapping[str, str] = os.environ) -> SessionDeadline:
    """The earliest of ``limits.wall_time`` from now on, of the end of the Slurm job that this process belongs
    to, and of ROOST_DEADLINE.

    Raises:
        Refused: It is past already.
        UsageError: A variable holds no moment.
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
            notes.append(f"{why}: if it has a time limit, give it as --time-limit, or in {DEADLINE_VARIABLE}")
    if not found:
        return SessionDeadline(None, notes)
    source = min(found, key=lambda name: found[name])
    at = found[source]
    if at <= now:
        raise Refused(
            f"the session would have to end before it begins: the deadline, {format_clock(at)}, was "
            f"{format_duration(now - at)} ago",
            setting=source,
            fix=f"unset {source}, or set it anew" if source == DEADLINE_VARIABLE else "ask for a new job",
        )
    if source != "limits.wall_time":
        notes.append(f"its time limit is from {source}")  # the run itself tells the moment
    return SessionDeadline(at, notes)


@functools.cache
def _job_end(job: str) -> tuple[float | None, str]:
    """The end of a Slurm job as its controller tells it; None when it has none, or when nobody can tell, and
    then why. Asked once in a process."""
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%e"]
    # A person may have set another format for all times.
    environment = {**os.environ, "SLURM_TIME_FORMAT": "standard"}
    unknown = f"the end of Slurm job {job} is not known"
    try:
        told = subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_SECONDS, env=environment, check=True
        ).stdout.split()
    except FileNotFoundError:
        return None, f"{unknown}, there is no squeue to ask"
    except subprocess.TimeoutExpired:
        return None, f"{unknown}, squeue did not answer within {_ASK_SECONDS:g} s"
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()
        return None, f"{unknown}, squeue failed ({said})"
    word = told[0] if told else ""
    if word.upper() in _NO_LIMIT_WORDS:
        return None, ""
    try:
        return parse_timestamp(word, setting="squeue"), ""
    except UsageError:
        return None, f"{unknown}, squeue says {word!r}"
