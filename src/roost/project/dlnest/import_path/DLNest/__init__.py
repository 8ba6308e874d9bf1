"""The module DLNest of a process without the finder of `import_names`: installs it, and the finder's own
module takes the place of this one.
"""

from __future__ import annotations

import importlib

from roost.project.dlnest import import_names

import_names.install()
importlib.import_module(import_names.ROOT)  # the import system returns what `sys.modules` has in the end
