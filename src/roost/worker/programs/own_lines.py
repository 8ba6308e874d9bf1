"""Lines of roost's own in the output of a program."""

# Standard library only

from __future__ import annotations


def print_own(text: str) -> None:
    """Prints a line with the beginning by which the supervisor knows it for roost's own: it is never named as
    the cause of a failure. The program may have left a line without its end."""
    print(f"\nroost: {text}", flush=True)
