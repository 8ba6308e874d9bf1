"""Servers that let bytes drip, and the proxies of the system."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from roost.base.errors import RoostError
from roost.project import http_transfer
from roost.project.http_transfer import TransferMonitor
from tests.lab.notices.receivers import certificate
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


def test_a_chunk_whose_length_never_ends() -> None:
    with Mirror({}) as mirror:
        slow = http_transfer.opened(mirror.url("chunk") + "a", timeout_seconds=0.3)
        with pytest.raises(RoostError, match=r"stalled: \d+ bytes"), slow as (_, pieces):
            next(pieces)


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


@pytest.mark.needs_program("openssl")
def test_the_certificates_of_the_system_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = certificate(tmp_path)
    with Mirror({"a": DATA}, own) as mirror:
        url = mirror.url("good") + "a"
        with pytest.raises(RoostError, match="certificate verify failed"):
            http_transfer.opened(url, 30.0).__enter__()
        monkeypatch.setenv("SSL_CERT_FILE", str(own))
        with http_transfer.opened(url, 30.0) as (_, pieces):
            assert b"".join(pieces) == DATA


@pytest.mark.parametrize(
    ("variables", "arrives"),
    [
        ({"http_proxy": NOBODY}, False),
        ({"http_proxy": NOBODY.removeprefix("http://")}, False),
        ({"http_proxy": NOBODY, "no_proxy": "127.0.0.1"}, True),
        ({"http_proxy": NOBODY, "no_proxy": "127.0.0.1:{port}"}, True),
        ({"http_proxy": NOBODY, "no_proxy": "127.0.0.1:1"}, False),
        ({"https_proxy": NOBODY}, True),
        ({"all_proxy": "socks5://127.0.0.1:9"}, True),
    ],
)
def test_the_proxies_of_the_system(
    variables: dict[str, str], arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy")
    with Mirror({"a": DATA}) as mirror:
        port = str(httpx.URL(mirror.url("good")).port)
        for name, value in variables.items():
            monkeypatch.setenv(name, value.replace("{port}", port))
        if not arrives:
            with pytest.raises(RoostError, match=r"^Connection refused$"):
                http_transfer.opened(mirror.url("good") + "a", 30.0).__enter__()
            return
        with http_transfer.opened(mirror.url("good") + "a", 30.0) as (_, pieces):
            assert b"".join(pieces) == DATA
