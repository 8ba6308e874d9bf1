"""`roost join`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("join")
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--detach", is_flag=True, help="Start the session in the background.")
def command(package: Path, detach: bool) -> int:
    """Adds this machine to a run that was started on another machine with --num-nodes.

    The package must be on a disk that all machines share, at the same path. The output of this machine's
    ranks is written to _output_node_1.txt, and so on. Ctrl-C saves and stops the whole run.

    \b
    roost run config.yaml -DDP --num-nodes 2 --rendezvous node1:29500     # on the first machine
    roost join /shared/runs/NAME                                          # on the second
    """
    from roost.cli.options.follow_options import follow_or_detach
    from roost.operations.lifecycle.join import join

    return follow_or_detach(join(package), detach=detach)
