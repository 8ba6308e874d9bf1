"""`roost lease`."""

from __future__ import annotations

import os

import click

from roost.base.errors import UsageError
from roost.cli.options.rank_options import parse_time_limit
from roost.display import terminal


@click.command("lease", context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--gpus", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="How many.")
@click.option("-m", "--memory", "memory", metavar="MB", help="Only this much memory of each: 8000, 8GB.")
@click.option("--wait", "waits", is_flag=True, help="If too few are free, wait in the queue with the tasks.")
@click.option("--time-limit", "limit", metavar="DURATION", help="End the command after this time: 2h.")
def command(command: tuple[str, ...], gpus: int, memory: str | None, waits: bool, limit: str | None) -> int:
    """Runs a command, or a shell, with GPUs that no other task gets in the meantime.

    The command sees only these GPUs (CUDA_VISIBLE_DEVICES). They are free again when the command and all
    processes that it started have ended. The exit code is that of the command. At the time limit the command
    gets SIGTERM, and is killed one minute later.

    Free cards are taken at once, as by roost run, even a card that is reserved for a task that waits for
    several. Only if too few are free the command waits (--wait), and then respects reservations.

    \b
    roost lease --gpus 1 -- jupyter lab
    roost lease --gpus 2 --wait            # a shell
    roost lease --time-limit 2h -- python try.py
    roost lease -m 8000 -- python try.py   # 8,000 MB; others may use the rest
    """
    from roost.base.text.byte_sizes import parse_memory
    from roost.devices.resource_request import MIN_CARD_MEMORY_MB, ResourceRequest
    from roost.operations.devices import interactive_lease

    mb = parse_memory(memory, setting="-m", min_mb=MIN_CARD_MEMORY_MB) if memory is not None else None
    if command and not command[0]:
        fix = "type `roost lease -- python train.py`, or leave out the -- for a shell"
        raise UsageError("is no command", setting="--", received=command[0], fix=fix)
    program = command or (os.environ.get("SHELL", "/bin/sh"),)
    seconds = parse_time_limit(limit) if limit is not None else None

    def at_limit() -> None:
        terminal.print_status(
            f"the time limit ({terminal.format_duration(seconds)}) is reached: the command got SIGTERM"
        )

    for event in interactive_lease.lease_cards(
        ResourceRequest(cards=gpus, memory_mb=mb, time_limit=seconds), wait=waits
    ):
        if isinstance(event, interactive_lease.LeaseWait):
            terminal.print_status(f"{event.why}; waiting")
        else:
            terminal.print_status(
                f"using {', '.join(f'GPU {card.number} ({card.name})' for card in event.cards)}"
            )
            return interactive_lease.run_command(program, event, time_limit=seconds, at_limit=at_limit)
    return 0
