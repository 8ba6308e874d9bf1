"""`roost simple`."""

from __future__ import annotations

import click

from roost.base.errors import UsageError


@click.command("simple")
@click.option(
    "-p", "--port", type=click.IntRange(1, 65535), help="A port of this machine; default: your server's."
)
@click.option("-u", "--url", metavar="URL", help="The URL of the server.")
def command(port: int | None, url: str | None) -> int:
    """Reads commands as DLNest writes them, line by line, and has a server carry them out.

    `help` lists them. Tab completes; Ctrl-C at the prompt does nothing; exit or Ctrl-D leaves the shell, and
    tasks continue. Lines may also come from a pipe: the exit code is then that of the first error.

    \b
    roost server --detach
    roost simple
    echo showTask | roost simple
    roost simple -p 9998            # a tunnel: ssh -L 9998:localhost:9999 HOST
    """
    if port is not None and url is not None:
        raise UsageError("-p and -u exclude each other", fix="leave out one")
    from roost.shell import server_connection
    from roost.shell.line_shell import LineShell

    connection = server_connection.connect(port=port, url=url)
    try:
        return LineShell(connection, name="roost", ends_its_tasks=False).run()
    finally:
        connection.close()
