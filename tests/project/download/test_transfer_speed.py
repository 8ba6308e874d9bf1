"""Mirrors that let drops through."""

from __future__ import annotations

import time

import pytest

from roost.project.download.transfer_speed import MirrorFailed, TransferMonitor, opener
from tests.mirror import Mirror


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_headers_that_never_end() -> None:
    with Mirror({}) as mirror:
        began = time.monotonic()
        with pytest.raises(MirrorFailed, match=r"stalled: \d+ bytes"):
            opener(TransferMonitor(0.3)).open(mirror.url("slow") + "a", timeout=30.0)
        assert time.monotonic() - began < 10


def test_the_body_has_a_window_of_its_own() -> None:
    pace = TransferMonitor(0.0)
    with pytest.raises(MirrorFailed):
        pace.add(0)
    pace.restart(60.0)
    pace.add(0)


def test_what_comes_fast_enough() -> None:
    pace = TransferMonitor(0.0)
    for _ in range(3):
        pace.add(2**20)


@pytest.mark.parametrize("how", ["good", "unsized", "moved"])
def test_nothing_is_lost_on_the_way(how: str) -> None:
    data = bytes(range(256)) * 1000
    with (
        Mirror({"a": data}) as mirror,
        opener(TransferMonitor(60.0)).open(mirror.url(how) + "a", timeout=30) as answer,
    ):
        assert answer.read() == data
