"""`roost lease`."""

from __future__ import annotations

import os

import click

from roost.cli import terminal


@click.command("lease", context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--gpus", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="How many.")
@click.option("-m", "--memory", "mb", type=click.IntRange(1), metavar="MB", help="So much of each alone.")
@click.option("--wait", "waits", is_flag=True, help="Wait until as many are free.")
def command(command: tuple[str, ...], gpus: int, mb: int | None, waits: bool) -> int:
    """Runs a command, or a shell, with GPUs that nobody else gets meanwhile.

    The command sees these GPUs alone (CUDA_VISIBLE_DEVICES). They are free again when it, and what it has
    started, has ended. The exit code is that of the command.

    \b
    roost lease --gpus 1 -- jupyter lab
    roost lease --gpus 2 --wait            # a shell
    roost lease -m 8000 -- python try.py   # 8,000 MB; others may use the rest
    """
    from roost.operations import lease

    program = command or (os.environ.get("SHELL", "/bin/sh"),)
    for event in lease.take(lease.LeaseRequest(count=gpus, mb=mb, waits=waits)):
        if isinstance(event, lease.Waits):
            terminal.say(f"{event.why}; waiting")
        else:
            terminal.say(f"with {', '.join(f'GPU {card.number} ({card.name})' for card in event.cards)}")
            return lease.run(program, event)
    return 0
