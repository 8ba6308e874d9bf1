"""``python -m roost.compat.dlnest.Run``: the program ``python -m DLNest.Run``."""

from __future__ import annotations

import sys

from roost.compat.dlnest import command_line

if __name__ == "__main__":
    sys.exit(command_line.main("Run", sys.argv[1:]))
