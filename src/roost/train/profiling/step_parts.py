"""Which part of a step a stack belongs to, by the functions of roost in it."""

from __future__ import annotations

from roost.package.results.profiles.profile_record import HOOKS, IDLE, LOGGING
from roost.package.results.time_breakdown import OTHER, PARTS
from roost.train.profiling.stack_sampler import Stack

DATA, TO_DEVICE, FORWARD, BACKWARD, OPTIMIZER, VALIDATE, SAVE = PARTS

BY_FUNCTION = {
    ("roost/train/step/windows.py", "draw"): DATA,
    ("roost/train/step/windows.py", "_windows"): DATA,
    ("roost/train/step/stepper.py", "run"): OPTIMIZER,
    ("roost/train/step/gradients.py", "_forward"): FORWARD,
    ("roost/train/step/gradients.py", "_backward"): BACKWARD,
    ("roost/train/trainer.py", "evaluate"): VALIDATE,
    ("roost/train/trainer.py", "_run_due_work"): HOOKS,
    ("roost/train/checkpointing/checkpointer.py", "save"): SAVE,
    ("roost/train/hooks/records.py", "on_step"): LOGGING,
    ("roost/train/hooks/console.py", "on_step"): LOGGING,
    ("roost/train/hooks/statistics.py", "on_step"): LOGGING,
    ("roost/train/profiling/worker_stacks.py", "timed"): IDLE,
}
"""The functions that begin a part, by file and name. By text, because the hooks import this module."""
WORKER_LOOP = ("roost/train/data/workers/loader_worker.py", "run_worker")


_LOOP = ("roost/train/trainer.py", "_train")
PART_ORDER = (DATA, TO_DEVICE, FORWARD, BACKWARD, OPTIMIZER, LOGGING, HOOKS, VALIDATE, SAVE, OTHER, IDLE)


def split(stack: Stack) -> tuple[str, Stack]:
    """Returns the part of a stack, of `PART_ORDER`, and the frames within it. The innermost function that
    begins a part decides; `IDLE` is a loader worker that waits for its next task."""
    for at in range(len(stack) - 1, -1, -1):
        name, file, _ = stack[at]
        key, inner = (_own_path(file), name), stack[at + 1 :]
        if (part := BY_FUNCTION.get(key)) is not None:
            return TO_DEVICE if part == DATA and inner and inner[0][0] == "to_device" else part, inner
        if key == WORKER_LOOP:
            return DATA if inner else IDLE, inner
        if key == _LOOP:
            return OTHER, inner
    return OTHER, stack


def _own_path(file: str) -> str:
    """Returns the path of a module of roost from ``roost/`` on."""
    at = file.rfind("roost/train/")
    return file[at:] if at >= 0 else file
