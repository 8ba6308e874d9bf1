"""What became of tasks by an order that is done at once."""

from __future__ import annotations

from collections.abc import Sequence

from roost.cli import terminal


def change_tasks(named: Sequence[str], *, held: bool | None = None, priority: int | None = None) -> int:
    """Changes tasks (`roost.operations.queue.task_control.change`) and says a line for each, and whether
    that has started
    the daemon; gives the exit code."""
    from roost.base.system import state_folder
    from roost.lab.background import daemon_presence
    from roost.operations.queue.task_control import change

    had_daemon = daemon_presence.find_daemon(state_folder.lab_folder()) is not None
    for task, unchanged in change(named, held=held, priority=priority):
        back = ", held back" if task.held else ""
        said = f"{task.name}: {terminal.format_state(task.state)}, priority {task.priority}{back}"
        terminal.print_status(f"{said}; it was not held back" if unchanged and held is False else said)
    if not had_daemon:
        terminal.print_status("the lab's daemon is started, for none ran")
    return 0
