"""``python -m roost.compat.dlnest SCRIPT.py ARGS...``: runs a script as ``python SCRIPT.py ARGS...`` does,
with roost's classes under the names of DLNest.

The names are those of ``roost.project.dlnest.import_names``: the base classes, the plugins, `SavePackage` and
`analyze`.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from roost.base.errors import RoostError

_USAGE = "usage: python -m roost.compat.dlnest SCRIPT.py ARGS..."


def main(arguments: list[str]) -> int:
    """Runs the script, and returns the exit code; an error of the script is raised."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stderr if not arguments else sys.stdout)
        return 0 if arguments else 2
    script = Path(arguments[0])
    if not script.is_file():
        print(f"error: there is no such script; received {str(script)!r}; {_USAGE}", file=sys.stderr)
        return 2
    from roost.project.dlnest import import_names  # torch

    sys.argv = arguments
    sys.path[0] = str(script.absolute().parent)  # as python itself does
    import_names.install()
    try:
        runpy.run_path(str(script), run_name="__main__")
    except RoostError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.last_value = error  # what `SavePackage` records as the end of its session
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
