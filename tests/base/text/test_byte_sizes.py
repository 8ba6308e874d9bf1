from __future__ import annotations

import pytest

from roost.base.errors import UsageError
from roost.base.text.byte_sizes import format_bytes, format_memory, parse_memory
from tests.messages import Messages


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (3_456, "3.46 kB"),
        (56_000_000, "56 MB"),
        (7.8912e12, "7891 GB"),
    ],
)
def test_sizes(num_bytes: float, text: str) -> None:
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(("mb", "text"), [(0, "0 MB"), (511.6, "512 MB"), (1536, "1.5 GB")])
def test_memory(mb: float, text: str) -> None:
    assert format_memory(mb) == text


@pytest.mark.parametrize(
    ("text", "mb"),
    [
        *[("20000", 20_000), ("20GB", 20_480), ("1.5 gb", 1536), ("512MB", 512), ("1", 1)],
        *[("4G", 4096), ("4GiB", 4096), ("4g", 4096), ("512M", 512), ("512MiB", 512)],
    ],
)
def test_memory_is_read(text: str, mb: int) -> None:
    assert parse_memory(text, setting="-m") == mb


@pytest.mark.parametrize(
    "text", ["", "0", "0.1", "-5", "lots", "5TB", "5B", "5iB", "1e3", "inf", "9" * 12, "GB"]
)
def test_what_is_no_memory(text: str, messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        parse_memory(text, setting="-m")
    messages.check(refused.value)
    assert refused.value.setting == "-m"


def test_gigabytes_are_not_taken_for_megabytes(messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        parse_memory("20", setting="-m", min_mb=64)
    messages.check(refused.value)
    assert refused.value.setting == "-m"
    assert all(fact in str(refused.value) for fact in ("20 MB", "'20'", "20GB"))
    with pytest.raises(UsageError) as refused:
        parse_memory("20MB", setting="-m", min_mb=64)
    messages.check(refused.value)
    assert refused.value.setting == "-m" and "64 MB" in str(refused.value)
    assert parse_memory("64", setting="-m", min_mb=64) == 64
