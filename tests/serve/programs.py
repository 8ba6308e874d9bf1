"""The serving process with other limits than it has: ``python programs.py NAME=NUMBER… ARGUMENTS``."""

from __future__ import annotations

import sys

from roost.serve import server_process
from roost.serve.http import request_middleware

for text in [one for one in sys.argv[1:] if "=" in one]:
    where, _, value = text.partition("=")
    module, _, name = where.partition(".")
    setattr(
        {"process": server_process, "middleware": request_middleware}[module],
        name,
        (float if "." in value else int)(value),
    )
sys.exit(server_process.main([one for one in sys.argv[1:] if "=" not in one]))
