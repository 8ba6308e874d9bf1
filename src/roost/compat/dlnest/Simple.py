"""``python -m roost.compat.dlnest.Simple``: the program ``python -m DLNest.Simple``."""

from __future__ import annotations

import sys

from roost.compat.dlnest import command_line

if __name__ == "__main__":
    sys.exit(command_line.main("Simple", sys.argv[1:]))
