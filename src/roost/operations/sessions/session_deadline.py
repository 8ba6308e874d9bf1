"""The time by which a session must have ended: from its settings, from Slurm, from the environment, from
deadline files, and from the platform."""

from __future__ import annotations

import functools
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from roost.base.errors import ConfigError, Refused, UsageError
from roost.base.interval import parse_duration
from roost.base.session_end import deadline_files
from roost.base.session_end.deadline_files import SCHEDULED_SHUTDOWN, DeadlineFiles
from roost.base.session_end.platform_limit import LENGTH_SETTING, LENGTH_VARIABLE, platform_limit
from roost.base.system.worker_protocol import DEADLINE_VARIABLE
from roost.base.text.durations import format_duration
from roost.base.text.timestamps import format_clock, parse_timestamp
from roost.config.sections.limits import LimitSettings

WALL_TIME = "limits.wall_time"
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
    source: str = ""
    """Where the time is from: a setting, a variable, a file, a job or a platform."""

    def seconds_left(self) -> float | None:
        """Returns the seconds until the deadline; None without one."""
        return None if self.at is None else self.at - time.time()


def deadline_of(limits: LimitSettings, environment: Mapping[str, str] = os.environ) -> SessionDeadline:
    """Returns the earliest of: ``limits.wall_time`` from now, the end of the Slurm job of this process,
    ROOST_DEADLINE, ``limits.session_length``, and what the deadline files and a scheduled shutdown say now.
    Only without any of these it is a guess about the platform.

    Raises:
        Refused: The deadline is past.
        UsageError: A variable does not hold a time, or an absolute path.
        ConfigError: A setting is no duration, or no absolute path.
    """
    now = time.time()
    found: dict[str, float] = {}
    if limits.wall_time is not None:
        found[WALL_TIME] = now + parse_duration(limits.wall_time, setting=WALL_TIME)
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
    variables = {**environment, **deadline_variables(limits, environment)}
    files = DeadlineFiles(deadline_files.paths_of(variables))
    if (in_file := files.earliest()) is not None:
        found[in_file.path] = in_file.at
    notes.extend(files.new_troubles)
    platform = platform_limit(limits.session_length, environment, now=now)
    if platform.at is not None and not (platform.is_guess and found):
        found[platform.source] = platform.at
    if not found:
        return SessionDeadline(None, [*notes, *platform.notes])
    source = min(found, key=lambda name: found[name])
    at = found[source]
    if at <= now:
        raise Refused(
            f"the session would end before it begins: the deadline, {format_clock(at)}, was "
            f"{format_duration(now - at)} ago",
            setting=source,
            fix=_fix_of_past(source, in_file.path if in_file is not None else ""),
        )
    if source != WALL_TIME:
        notes.append(f"its time limit is from {source}")  # the run itself reports the time
    return SessionDeadline(at, notes, source)


def _fix_of_past(source: str, file: str) -> str:
    if source == SCHEDULED_SHUTDOWN:
        return "`shutdown -c` cancels the shutdown of this machine"
    if source == file:
        return "remove the file, or write another time into it"
    if source == DEADLINE_VARIABLE or source.startswith((LENGTH_SETTING, LENGTH_VARIABLE)):
        name = source.partition("=")[0]
        return f"unset {name}, or set it again"
    return "request a new job"


def deadline_variables(limits: LimitSettings, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the variables by which supervisor and worker of a session know its deadline files, and the lab
    the length of its session, as far as settings name them: ``limits.deadline_file`` is added to the files
    that the variable names already.

    Raises:
        ConfigError: The path of the setting is not absolute, or has a colon, which separates files.
        UsageError: A path of the variable is not absolute.
    """
    length = {} if limits.session_length is None else {LENGTH_VARIABLE: limits.session_length}
    given = list(filter(None, environment.get(deadline_files.VARIABLE, "").split(os.pathsep)))
    if relative := [one for one in given if not Path(one).is_absolute()]:  # the session runs elsewhere
        raise UsageError(
            "is not an absolute path",
            setting=deadline_files.VARIABLE,
            received=relative[0],
            fix="write /run/session-end",
        )
    if limits.deadline_file is None:
        return length
    path = os.path.expanduser(limits.deadline_file)  # noqa: PTH111  - never raises
    if not Path(path).is_absolute() or os.pathsep in path:
        raise ConfigError(
            "is not an absolute path without a colon",
            setting="limits.deadline_file",
            received=limits.deadline_file,
            fix="write /run/session-end, or ~/session-end",
        )
    return {**length, deadline_files.VARIABLE: os.pathsep.join([path, *given])}


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
