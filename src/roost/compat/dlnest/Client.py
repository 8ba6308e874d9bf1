"""``python -m roost.compat.dlnest.Client``: the program ``python -m DLNest.Client``."""

from __future__ import annotations

import sys

from roost.compat.dlnest import command_line

if __name__ == "__main__":
    sys.exit(command_line.main("Client", sys.argv[1:]))
