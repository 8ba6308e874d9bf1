"""Changes tasks for `roost hold`, `release` and `priority`, and prints the result."""

from __future__ import annotations

from collections.abc import Sequence

from roost.display import terminal


def change_tasks(named: Sequence[str], *, held: bool | None = None, priority: int | None = None) -> int:
    """Changes tasks (`roost.operations.queue.task_control.change`), prints a line for each and whether the
    daemon was started; returns the exit code."""
    from roost.base.system import state_folder
    from roost.lab.background import daemon_presence
    from roost.operations.queue.task_control import change

    had_daemon = daemon_presence.find_daemon(state_folder.lab_folder()) is not None
    changed = change(named, held=held, priority=priority)
    for task, unchanged in changed.changes:
        suffix = ", held" if task.held else ""
        line = f"{task.name}: {terminal.format_state(task.state)}, priority {task.priority}{suffix}"
        terminal.print_status(f"{line}; it was not held" if unchanged and held is False else line)
    for note in changed.notes:
        terminal.print_status(note)
    if not had_daemon and not changed.notes:
        terminal.print_status("no daemon was running: started the lab's daemon")
    return 0
