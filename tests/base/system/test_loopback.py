"""Recognition of loopback addresses."""

from __future__ import annotations

import pytest

from roost.base.system.loopback import is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_the_loopback_is(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["127.0.0.1.evil.example", "127.evil.example", "localhost.evil", "10.0.0.1", ""]
)
def test_what_only_looks_like_it_is_not(host: str) -> None:
    assert not is_loopback(host)
