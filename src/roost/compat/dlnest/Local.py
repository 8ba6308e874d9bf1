"""``python -m roost.compat.dlnest.Local``: the program ``python -m DLNest.Local``."""

from __future__ import annotations

import sys

from roost.compat.dlnest import command_line

if __name__ == "__main__":
    sys.exit(command_line.main("Local", sys.argv[1:]))
