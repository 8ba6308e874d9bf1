"""What the commands that start a session have in common."""

from __future__ import annotations

import sys
from typing import Any

from roost.cli.options.device_option import take_device
from roost.cli.options.follow_options import take_terminal
from roost.cli.options.rank_options import take_ranks


def take_session_options(options: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Takes the options of device, ranks and terminal out of a command's: whether to detach, and what the
    operation's request says of them.

    Raises:
        UsageError: They contradict each other.
    """
    device = take_device(options)
    ranks = take_ranks(options, device=device)
    detach, terminal = take_terminal(options)
    return detach, {"device": device, "ranks": ranks, "terminal": terminal, "command": sys.argv}
