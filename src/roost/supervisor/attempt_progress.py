"""The progress that each attempt at a run has made, and whether automatic attempts go in circles.

An attempt is a session that began without a person: an automatic restart (``--restart``), a retry of the lab
(``--retry``), or one that `roost up` has queued. A person who starts a session has a reason to expect more of
it, so with that session the count begins again.

::

    step, saved   the step that was reached, and that of the newest checkpoint, when a session ended
    stuck         the last 3 attempts have ended at the same step, with the same checkpoint: an error that
                  comes back, a limit that is too short; or the last 5 have got no further than the first of
                  them
"""

# Standard library only

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

SAME_STEP_ATTEMPTS, NO_FURTHER_ATTEMPTS = 3, 5
UP_COMMAND = ("roost", "up")
_CHECKPOINTS, _MANIFEST = "Checkpoints", "MANIFEST.json"


class AttemptProgress(NamedTuple):
    """How far an attempt got."""

    step: int | None
    """The step when it ended; None: it began no step, or none is known."""
    saved: int | None
    """The step of the newest checkpoint when it ended; None: there was none."""


def is_automatic(request: Mapping[str, Any]) -> bool:
    """Whether a session began without a person, by its request file."""
    attempt, command = request.get("attempt"), request.get("command")
    return (
        isinstance(request.get("restart_of"), int)
        or (isinstance(attempt, int) and attempt > 1)
        or (isinstance(command, list) and tuple(command[:2]) == UP_COMMAND)
    )


def stuck_text(newest_first: Sequence[AttemptProgress], *, needs_steps: bool) -> str | None:
    """Returns a sentence about attempts that go in circles; None if they do not.

    Args:
        newest_first: The attempts since a person started the run, that first session included.
        needs_steps: Whether an attempt of which no step is known may have made progress: a program need not
            count any.
    """
    same = newest_first[:SAME_STEP_ATTEMPTS]
    if needs_steps and any(one.step is None for one in same):
        return None
    if len(same) == SAME_STEP_ATTEMPTS and len(set(same)) == 1:
        step = same[0].step
        place = "without a step on record" if step is None else f"at step {step:,}"
        return f"its last {SAME_STEP_ATTEMPTS} attempts have ended {place}"
    last = newest_first[:NO_FURTHER_ATTEMPTS]
    if needs_steps and any(one.step is None for one in last):
        return None
    if len(last) < NO_FURTHER_ATTEMPTS:
        return None
    first, *others = reversed(last)
    if any(_is_further(one, first) for one in others):
        return None
    return f"its last {NO_FURTHER_ATTEMPTS} attempts have got no further than step {first.step or 0:,}"


def _is_further(one: AttemptProgress, first: AttemptProgress) -> bool:
    return (one.step or 0) > (first.step or 0) or (one.saved or 0) > (first.saved or 0)


def progress_of(record: Mapping[str, Any]) -> AttemptProgress:
    """Returns the progress of a session by its record."""
    step, saved = record.get("step"), record.get("saved_step")
    return AttemptProgress(_count(step), _count(saved))


def newest_saved_step(folder: str) -> int | None:
    """Returns the step of the newest checkpoint of a package; None: there is none."""
    checkpoints = os.path.join(folder, _CHECKPOINTS)  # noqa: PTH118  - pathlib is not loaded in every process
    try:
        names = os.listdir(checkpoints)  # noqa: PTH208
    except OSError:
        return None
    ids = {int(digits): name for name in names if (digits := _id(name)).isdecimal()}
    for _, name in sorted(ids.items(), reverse=True):
        try:
            with open(f"{checkpoints}/{name}/{_MANIFEST}", "rb") as file:
                return _count(json.load(file)["step"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _id(name: str) -> str:
    return name.rpartition("_")[2].removesuffix(".ckpt") if name.endswith(".ckpt") else ""


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
