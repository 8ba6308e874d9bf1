"""The runs of `bench/runs.py`, the same for every tracker."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

METRICS = [f"{split}/{name}" for split in ("train", "valid")
           for name in ("loss", "accuracy", *(f"part_{n}" for n in range(18)))]  # fmt: skip
"""40 metrics."""
FREQUENT = METRICS[:2]
"""The metrics in each row of a long run; every 1,000th row has all of them."""
LEARNING_RATES = (1e-4, 3e-4, 1e-3, 3e-3)
_SHORT_ROWS = 10

Rows = Iterator[tuple[int, dict[str, float]]]


def name(number: int) -> str:
    """Returns the name of a run."""
    return f"run-{number:05d}"


def settings(number: int) -> dict[str, Any]:
    """Returns 60 settings, of which 14 differ between runs: of two levels, as those of most configs."""
    drawn = random.Random(number)
    varied = {f"varied_{n}": drawn.choice([1, 2, 4, 8]) for n in range(10)}
    return {
        "seed": number % 5,
        "max_steps": 100 + number % 3,
        "optimizer": {"lr": LEARNING_RATES[number % 4], "weight_decay": round(drawn.random(), 6)},
        "model": {**varied, **{f"width_{n}": 64 for n in range(30)}},
        "data": {f"option_{n}": "none" for n in range(16)},
    }


def flat_settings(number: int) -> dict[str, Any]:
    """Returns the settings by dotted name."""
    flat: dict[str, Any] = {}
    for key, value in settings(number).items():
        flat |= (
            {f"{key}.{one}": found for one, found in value.items()}
            if isinstance(value, dict)
            else {key: value}
        )
    return flat


def num_rows(number: int, long_runs: int) -> int:
    """Returns how many rows a run has: a million has the first one, 100,000 the other long ones."""
    if number >= long_runs + 1 or not long_runs:
        return _SHORT_ROWS
    return 100_000 if number else 1_000_000


def rows(number: int, long_runs: int) -> Rows:
    """Yields each step with its metrics."""
    drawn = random.Random(number)
    count = num_rows(number, long_runs)
    for step in range(1, count + 1):
        names = METRICS if count == _SHORT_ROWS or step % 1000 == 0 else FREQUENT
        loss = 1.0 / (1.0 + step / count)
        yield step, {one: loss + drawn.random() / 10 for one in names}
