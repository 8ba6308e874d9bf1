"""What became of tasks by an order that is done at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from roost.cli import terminal

if TYPE_CHECKING:
    from roost.lab.task import Task


def show(tasks: Sequence[Task]) -> int:
    """Says a line for each; gives the exit code."""
    for task in tasks:
        held = ", held back" if task.held else ""
        terminal.say(f"{task.name}: {terminal.state(task.state)}, priority {task.priority}{held}")
    return 0
