"""`roost tensorboard`."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import click

from roost.display import terminal


@click.command("tensorboard")
@click.argument("packages", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port; default: 6006, or the next free one; 0: any."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address; every user who can reach it sees all.",
)
def command(packages: tuple[Path, ...], port: int | None, host: str) -> int:
    """Shows packages in TensorBoard, with new records as they arrive; Ctrl-C ends it.

    No mirror is needed: event files are written from the records to a temporary folder. The packages are not
    changed.

    \b
    roost tensorboard runs/NAME
    roost tensorboard runs/* --port 7007
    """
    from roost.operations.curves.tensorboard import tensorboard

    signal.signal(signal.SIGTERM, _interrupt)
    with closing(tensorboard(packages, host=host, port=port)) as events:  # type: ignore[type-var]
        try:
            for serving in events:
                click.echo(serving.url)
                plural = "s" * (len(serving.runs) != 1)
                terminal.print_status(
                    f"TensorBoard shows {len(serving.runs)} package{plural}; Ctrl-C ends it"
                )
        except KeyboardInterrupt:
            terminal.print_status("ended")
    return 0


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
