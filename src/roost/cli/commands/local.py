"""`roost local`."""

from __future__ import annotations

import click


@click.command("local")
def command() -> int:
    """Reads commands as roost simple does, and carries them out without a server.

    Leaving the shell, by exit, Ctrl-D or Ctrl-C, asks whether to save and end the tasks that were started in
    it; their packages can be continued. Lines may also come from a pipe, at whose end these tasks end; `logs
    TASK -f` waits for a task.

    \b
    roost local                     # then, for example: help run
    echo showTask | roost local
    """
    from roost.shell import local_connection
    from roost.shell.line_shell import LineShell

    return LineShell(local_connection.connect(), name="local", ends_its_tasks=True).run()
