from __future__ import annotations

import pytest

from roost.base.errors import ConfigError
from roost.base.interval import NEVER
from roost.train.end_condition import EndCondition
from roost.train.progress import Progress
from tests.messages import Messages


@pytest.mark.parametrize(
    ("text", "until"),
    [
        (1000, EndCondition(steps=1000)),
        ("7", EndCondition(steps=7)),
        ("10ep", EndCondition(epochs=10)),
        ("90min", EndCondition(seconds=5400.0)),
        ("1h30min", EndCondition(seconds=5400.0)),
    ],
)
def test_parse(text: str | int, until: EndCondition) -> None:
    assert EndCondition.parse(text) == until


@pytest.mark.parametrize("text", ["10/ep", "ten", "0", 0, "-1"])
def test_what_is_no_end(text: str | int, messages: Messages) -> None:
    with pytest.raises(ConfigError, match="until") as refused:
        EndCondition.parse(text)
    messages.check(refused.value)


def test_the_first_limit_counts() -> None:
    until = EndCondition(steps=10, epochs=2, seconds=5.0)
    assert not until.reached(Progress(step=9, epoch=1, seconds=4.9))
    assert until.reached(Progress(step=10))
    assert until.reached(Progress(epoch=2))
    assert until.reached(Progress(seconds=5.0))
    assert until.total_steps(4) == 8
    assert until.total_steps(6) == 10
    assert EndCondition(seconds=5.0).total_steps(4) == NEVER
