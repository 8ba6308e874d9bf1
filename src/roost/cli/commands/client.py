"""`roost client`, also `roost top`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from roost.base.errors import UsageError

if TYPE_CHECKING:
    from roost.shell.lab_connection import LabConnection


@click.command("client")
@click.option("-p", "--port", type=click.IntRange(1, 65535), help="The port of the server on this machine.")
@click.option("-u", "--url", metavar="URL", help="The URL of the server: http://localhost:9999.")
@click.option("--readonly", is_flag=True, help="Change nothing.")
@click.option(
    "--theme", type=click.Choice(["auto", "dark", "light"]), default="auto", show_default=True,
    help="The background. NO_COLOR leaves out all colours.",
)  # fmt: skip
@click.option(
    "--ascii", "is_ascii", is_flag=True, help="No characters beyond ASCII, as without a UTF-8 locale."
)
def command(port: int | None, url: str | None, readonly: bool, theme: str, is_ascii: bool) -> int:
    """Shows the lab on the whole terminal: tasks, cards, curves, logs, analyzers, and a command line.

    Without options it shows the server of this user. What it shows is pushed by the server; if the server
    ends, it connects again by itself. Leaving it, by q, ends nothing. `roost top` is the same.

    A server on another machine is reached by a tunnel: ssh -L 9999:localhost:9999 HOST.

    \b
    roost client
    roost client --readonly
    roost client -p 9999          # a tunnel, or another server of this machine
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fix = "`roost tasks` and `roost devices` print the same, also into a pipe"
        raise UsageError("the client needs a terminal", fix=fix)
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        kind = os.environ.get("TERM", "")
        fix = "`roost tasks` and `roost devices` print the same"
        raise UsageError("this terminal cannot place the cursor", setting="TERM", received=kind, fix=fix)
    found = None
    if port is not None or url is not None:
        from roost.shell import server_connection, server_url

        found = server_url.find(port=port, url=url)
        if port is not None and found is not None:
            server_connection.require_listener(port)
    place = found or _require_own_server()
    from roost.tui import terminal_guard

    return terminal_guard.run_guarded(lambda: _run(found, place, readonly, theme, is_ascii))


def _require_own_server() -> str:
    """Returns the name of this user's lab for the status line.

    Raises:
        NotFound: No server of this user listens. This is said before the screen is taken.
    """
    import getpass
    import socket

    from roost.base.errors import NotFound
    from roost.base.system import state_folder

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5.0)
        path = str(state_folder.lab_folder() / "server.sock")
        try:
            probe.connect(path)
        except OSError:
            raise NotFound("no server of yours runs", fix="`roost server --detach` starts one") from None
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _run(url: str | None, place: str, readonly: bool, theme: str, is_ascii: bool) -> int:
    """Runs the client in the process that the guard watches."""
    import gc

    from roost.tui import first_frame

    for name in ("COLUMNS", "LINES"):  # `resize` and GNU readline export them; Textual would prefer them
        os.environ.pop(name, None)
    gc.disable()  # imports make few cycles, and the collector would take a tenth of the start
    only_ascii = is_ascii or first_frame.needs_ascii(
        first_frame.started_environment(), sys.stdout.encoding or "ascii"
    )
    first_frame.show(
        sys.stdout.fileno(), f"roost {place}", unicode=not only_ascii, colours=not os.environ.get("NO_COLOR")
    )
    from roost.tui.client_app import RoostClient
    from roost.tui.drawing import palette

    def connect() -> LabConnection:
        from roost.shell import server_connection

        return server_connection.connect(url=url)

    app = RoostClient(
        url, connect, palette.choose(theme), place=place, is_ascii=only_ascii, is_read_only=readonly
    )
    gc.enable()
    gc.freeze()
    code = app.run()
    if app.error is not None:
        raise app.error
    return code or app.return_code or 0
