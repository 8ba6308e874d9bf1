"""`roost join`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("join")
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--detach", is_flag=True, help="Start it and return.")
def command(package: Path, detach: bool) -> int:
    """Lets this machine take part in a run that was begun on another with --num-nodes.

    The package lies on a disk that all machines share, at the same place. What the ranks of this machine
    print is in _output_node_1.txt, and so on. Ctrl-C saves and stops the whole run.

    \b
    roost run config.yaml -DDP --num-nodes 2 --rendezvous node1:29500     # on the first machine
    roost join /shared/runs/NAME                                          # on the second
    """
    from roost.cli.options.follow_options import follow_or_detach
    from roost.operations.lifecycle.join import join

    return follow_or_detach(join(package), detach=detach)
