"""``python -m roost.compat.dlnest.Server``: the program ``python -m DLNest.Server``."""

from __future__ import annotations

import sys

from roost.compat.dlnest import command_line

if __name__ == "__main__":
    sys.exit(command_line.main("Server", sys.argv[1:]))
