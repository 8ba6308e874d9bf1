from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.notices.receivers import Web


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()
