"""Servers that let bytes drip, and the proxies of the system."""

from __future__ import annotations

import time

import pytest

from roost.base.errors import RoostError
from roost.project import http_transfer
from roost.project.http_transfer import TransferMonitor
from tests.mirror import Mirror

DATA = bytes(range(256)) * 1000
NOBODY = "http://127.0.0.1:9"
"""The discard port, where nothing listens."""


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_headers_that_never_end() -> None:
    with Mirror({}) as mirror:
        began = time.monotonic()
        slow = http_transfer.opened(mirror.url("slow") + "a", timeout_seconds=0.1)
        with pytest.raises(RoostError, match=r"stalled: \d+ bytes"), slow:
            pass
        assert time.monotonic() - began < 10


def test_the_body_has_a_window_of_its_own() -> None:
    monitor = TransferMonitor(0.0)
    with pytest.raises(RoostError):
        monitor.add(0)
    monitor.restart(60.0)
    monitor.add(0)


def test_what_comes_fast_enough() -> None:
    monitor = TransferMonitor(0.0)
    for _ in range(3):
        monitor.add(2**20)


@pytest.mark.parametrize("how", ["good", "unsized", "moved"])
def test_nothing_is_lost_on_the_way(how: str) -> None:
    with Mirror({"a": DATA}) as mirror, http_transfer.opened(mirror.url(how) + "a", 30.0) as (total, pieces):
        assert total == (None if how == "unsized" else len(DATA))
        assert b"".join(pieces) == DATA


@pytest.mark.parametrize(
    ("variables", "arrives"),
    [
        ({"http_proxy": NOBODY}, False),
        ({"http_proxy": NOBODY.removeprefix("http://")}, False),
        ({"http_proxy": NOBODY, "no_proxy": "127.0.0.1"}, True),
        ({"https_proxy": NOBODY}, True),
        ({"all_proxy": "socks5://127.0.0.1:9"}, True),
    ],
)
def test_the_proxies_of_the_system(
    variables: dict[str, str], arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with Mirror({"a": DATA}) as mirror:
        if not arrives:
            with pytest.raises(RoostError, match=r"^Connection refused$"):
                http_transfer.opened(mirror.url("good") + "a", 30.0).__enter__()
            return
        with http_transfer.opened(mirror.url("good") + "a", 30.0) as (_, pieces):
            assert b"".join(pieces) == DATA
