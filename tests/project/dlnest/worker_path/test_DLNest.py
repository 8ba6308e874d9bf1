from __future__ import annotations

import importlib
import multiprocessing
import sys

import pytest

from roost.project.dlnest import import_names


def _home(name: str) -> str:
    return str(importlib.import_module(name).DatasetBase.__module__)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_that_multiprocessing_starts_anew_has_them(method: str) -> None:
    """A worker of a loader with such a context: it imports the module of the dataset."""
    import_names.install()
    with multiprocessing.get_context(method).Pool(1) as pool:
        found = pool.apply_async(_home, ("DLNest.Common.DatasetBase",)).get(100)
    assert found == "roost.project.dlnest.classes.dataset_base"
    before = list(sys.path)
    import_names.uninstall()
    assert len(sys.path) == len(before) - 1
