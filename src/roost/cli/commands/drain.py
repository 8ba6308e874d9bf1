"""`roost drain`."""

from __future__ import annotations

import click

from roost.cli import terminal


@click.command("drain")
@click.argument("card")
@click.option("--off", is_flag=True, help="Let tasks begin there again.")
def command(card: str, off: bool) -> int:
    """Lets no more tasks begin on a GPU, or on all; what runs there goes on.

    \b
    roost drain 0
    roost drain 0,2 --off
    roost drain all             # before the machine is shut down
    """
    from roost.operations.cards import drain

    drained = drain(card, off=off)
    names = ", ".join(f"GPU {one.number}" for one in drained)
    terminal.say(f"{names}: tasks begin there again" if off else f"{names}: no more tasks begin there")
    return 0
