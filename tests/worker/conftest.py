from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.project.conftest import forgotten as forgotten  # the same projects are loaded here


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Puts the handlers back that a test has replaced."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
