"""The options that all commands have which start a session."""

from __future__ import annotations

import sys
from typing import Any

from roost.cli.options.device_option import take_device
from roost.cli.options.follow_options import take_terminal
from roost.cli.options.rank_options import take_ranks


def take_session_options(options: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Removes the options of device, ranks and terminal from a command's options.

    Returns:
        Whether to detach, and the fields of the operation's request.

    Raises:
        UsageError: Options contradict each other.
    """
    device = take_device(options)
    ranks = take_ranks(options, device=device)
    detach, terminal = take_terminal(options)
    return detach, {"device": device, "ranks": ranks, "terminal": terminal, "command": sys.argv}
