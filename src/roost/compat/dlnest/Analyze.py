"""``python -m roost.compat.dlnest.Analyze``: the program ``python -m DLNest.Analyze``."""

from __future__ import annotations

import sys

from roost.compat.dlnest import command_line

if __name__ == "__main__":
    sys.exit(command_line.main("Analyze", sys.argv[1:]))
