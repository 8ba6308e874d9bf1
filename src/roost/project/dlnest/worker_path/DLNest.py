"""Imported as ``DLNest`` by a process that multiprocessing has started anew: it has no entry of
``sys.meta_path`` from the process that started it, but its ``sys.path``."""

import importlib
import sys

from roost.project.dlnest import import_names

import_names.install()
sys.modules[__name__] = importlib.import_module(__name__)
