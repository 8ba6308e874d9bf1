from __future__ import annotations

import pytest

from roost.base.size import memory, size


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
    assert size(num_bytes) == text


@pytest.mark.parametrize(("mb", "text"), [(0, "0 MB"), (511.6, "512 MB"), (1536, "1.5 GB")])
def test_memory(mb: float, text: str) -> None:
    assert memory(mb) == text
