from __future__ import annotations

import pytest

from roost.devices.memory_split import fewest_cards


@pytest.mark.parametrize(
    ("total_mb", "free_mb", "found"),
    [
        (100, [100], (1, 100)),
        (101, [100, 100], (2, 51)),
        (150, [40, 100, 80], (2, 75)),
        (150, [20, 100, 60, 90], (2, 75)),
        (200, [20, 100, 60], None),
        (1, [], None),
    ],
)
def test_the_fewest_cards_that_have_it_together(
    total_mb: int, free_mb: list[int], found: tuple[int, int] | None
) -> None:
    assert fewest_cards(total_mb, free_mb) == found
