"""The option of commands that begin a session of a package which another machine may be running."""

from __future__ import annotations

import click

steal_option = click.option(
    "--steal",
    is_flag=True,
    help="Take the package over from a session of another machine, which stops without a save.",
)
