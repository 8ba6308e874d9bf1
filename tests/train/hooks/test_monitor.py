from __future__ import annotations

import math

import pytest

from roost.base.errors import ConfigError
from roost.train.hooks.monitor import is_better, monitored_value, worst_value
from tests.messages import Messages


@pytest.mark.parametrize(
    ("value", "than", "mode", "min_delta", "expected"),
    [
        (1.0, 2.0, "min", 0.0, True),
        (2.0, 2.0, "min", 0.0, False),
        (3.0, 2.0, "max", 0.0, True),
        (1.5, 2.0, "min", 0.5, False),
        (1.4, 2.0, "min", 0.5, True),
        (2.4, 2.0, "max", 0.5, False),
        (math.nan, 2.0, "min", 0.0, False),
        (math.nan, -math.inf, "max", 0.0, False),
        (-1e300, worst_value("min"), "min", 0.0, True),
        (-1e300, worst_value("max"), "max", 0.0, True),
        (math.inf, worst_value("min"), "min", 0.0, False),
    ],
)
def test_better(value: float, than: float, mode: str, min_delta: float, expected: bool) -> None:
    assert is_better(value, than, mode=mode, min_delta=min_delta) == expected


def test_monitored(messages: Messages) -> None:
    assert monitored_value({"valid/loss": 1.0}, "valid/loss", setting="s") == 1.0
    with pytest.raises(ConfigError) as refused:
        monitored_value({}, "x", setting="s")
    assert refused.value.setting == "s"
    assert "'x'" in str(refused.value)
    messages.check(refused.value)


@pytest.mark.parametrize(
    ("value", "than", "mode", "min_delta", "expected"),
    [
        (0.89, 1.0, "min", 0.1, True),
        (0.91, 1.0, "min", 0.1, False),
        (-0.91, -1.0, "max", 0.1, False),  # -1 is not improved by 0.1 of its size
        (-0.89, -1.0, "max", 0.1, True),
        (-1.05, -1.0, "max", 0.1, False),  # a bar of best * (1 + delta) would let this one pass
        (-1.05, -1.0, "min", 0.1, False),
        (-1.11, -1.0, "min", 0.1, True),
        (1.11, 1.0, "max", 0.1, True),
        (-1e-9, 0.0, "min", 0.5, True),
        (0.0, 0.0, "min", 0.5, False),
        (1e-9, 0.0, "max", 0.5, True),
        (-1e300, worst_value("max"), "max", 0.5, True),
        (1e300, worst_value("min"), "min", 0.5, True),
        (math.inf, worst_value("min"), "min", 0.5, False),
        (math.nan, 1.0, "min", 0.5, False),
        (-math.inf, 1.0, "min", 0.5, True),
    ],
)
def test_better_by_a_share(value: float, than: float, mode: str, min_delta: float, expected: bool) -> None:
    assert is_better(value, than, mode=mode, min_delta=min_delta, relative=True) == expected
