"""`roost server`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.base.errors import NotFound
from roost.display import terminal

if TYPE_CHECKING:
    from roost.serve.server_presence import ServerRecord

_PORT = click.IntRange(1, 65535)


@click.group("server", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--port", type=_PORT, help="The port on this machine; default: 9999, or the next free one.")
@click.option("--detach", is_flag=True, help="Run the server in the background.")
@click.option(
    "--root", "roots", multiple=True, type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of packages to show in addition to those of the lab; can be repeated.",
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, port: int | None, detach: bool, roots: tuple[Path, ...]) -> int:
    """Serves the operations of roost over HTTP, to you only.

    The server listens on this machine only, and requires the token that `roost server token` prints. From
    another
    machine: ssh -L 9999:localhost:9999 HOST.

    \b
    roost server --detach
    roost server status
    curl -H "Authorization: Bearer $(roost server token)" http://localhost:9999/api/v1/tasks
    """
    if ctx.invoked_subcommand is not None:
        return 0
    from roost.operations import lab
    from roost.serve import server_control

    def begins(port: int) -> None:
        lab.ensure_daemon()
        terminal.print_status(f"serving {_url(port)}; Ctrl-C ends the server, running tasks continue")

    if detach:
        found = server_control.start(port, roots)
        try:
            lab.ensure_daemon()
        except BaseException:
            server_control.stop()
            raise
        terminal.print_status(f"the server runs: {_url(found.port)} (pid {found.pid})")
        return 0
    from roost.base.system import state_folder
    from roost.serve.routes import served_packages
    from roost.serve.server_process import serve

    folder = state_folder.lab_folder()
    served_packages.add_folders(roots)
    os.chdir("/")
    serve(folder, port, on_bound=begins)
    return 0


@command.command("stop")
def stop() -> int:
    """Ends the server. The lab and running tasks continue.

    \b
    roost server stop
    """
    from roost.serve import server_control

    found = server_control.stop()
    terminal.print_status("no server runs" if found is None else f"the server (pid {found.pid}) has ended")
    return 0


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> int:
    """Shows whether a server runs, and its address. The exit code is 3 if none runs.

    \b
    roost server status
    """
    from roost.base.system import state_folder
    from roost.serve import server_control

    found = server_control.status()
    if as_json:
        terminal.print_json(
            {"running": False} if found is None else _to_json(found, state_folder.lab_folder())
        )
    elif found is None:
        click.echo("no server runs; `roost server --detach` starts one")
    else:
        since = terminal.format_time(found.started)
        click.echo(f"{_url(found.port)}  pid {found.pid}, roost {found.version}, since {since}")
    return 0 if found is not None else NotFound.exit_code


def _url(port: int) -> str:
    return f"http://localhost:{port}/api/v1"


def _to_json(found: ServerRecord, folder: Path) -> dict[str, Any]:
    from msgspec.structs import asdict

    from roost.serve.http import listening_sockets

    return {
        "running": True,
        "url": _url(found.port),
        "socket": str(folder / listening_sockets.SOCKET_NAME),
        **asdict(found),
    }


@command.command("token")
@click.option("--renew", is_flag=True, help="Create a new token; the old one becomes invalid.")
def token(renew: bool) -> int:
    """Prints the token that clients send. It gives access to everything that you can do with roost.

    \b
    roost server token
    """
    from roost.base.system import state_folder
    from roost.serve.http import access_token as tokens

    folder = state_folder.lab_folder()
    state_folder.prepare(folder)
    click.echo(tokens.renew_token(folder) if renew else tokens.read_or_create_token(folder))
    return 0
