from __future__ import annotations

from collections.abc import Iterator

import pytest

from roost.project.dlnest import import_names


@pytest.fixture(autouse=True)
def without_import_names() -> Iterator[None]:
    """The names of one test's project are not there in the next test."""
    yield
    import_names.uninstall()
