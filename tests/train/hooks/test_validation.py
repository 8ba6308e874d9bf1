from __future__ import annotations

from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.train.hooks import Validate
from tests.messages import Messages
from tests.train.hooks.test_checkpoint_save import Asks
from tests.train.parts import MLP, Steps, Still, built, loader, plain


def validating(every: Any, *hooks: Any, until: int = 8) -> list[int]:
    """The steps at which it was validated."""
    steps = Steps()
    loaders = {"valid": loader(Still(), 8, shuffle=False)}
    plain(built(MLP), Still(), [*hooks, Validate(every), steps], until=until, loaders=loaders).fit()
    return steps.evals


@pytest.mark.parametrize(
    ("every", "steps"), [("3", [3, 6, 8]), ("1ep", [7, 8]), ("2/ep", [4, 7, 8]), (1, list(range(1, 9)))]
)
def test_at_its_interval_and_in_the_last_step(every: Any, steps: list[int]) -> None:
    assert validating(every) == steps


def test_on_request_in_the_same_step() -> None:
    assert validating("100", Asks(3, "validate")) == [3, 8]
    assert validating("3", Asks(3, "validate")) == [3, 6, 8], "once, though asked for and due"


class Probed(MLP):
    """Counts the batches that it evaluates."""

    def build(self) -> None:
        super().build()
        self.evaluated = 0

    def evaluate(self, batch: Any, **variant: Any) -> Any:
        self.evaluated += 1
        return super().evaluate(batch, **variant)


@pytest.mark.parametrize("probes", [True, False])
def test_a_batch_is_probed_first_unless_switched_off(probes: bool) -> None:
    runner = built(Probed)
    loaders = {"valid": loader(Still(), 8, shuffle=False)}
    plain(runner, Still(), [Validate("100", probes=probes)], until=1, loaders=loaders).fit()
    assert runner.evaluated == 4 + probes


def test_without_a_validation_set(messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        plain(built(MLP), Still(), [Validate("1")]).fit()
    assert all(fact in str(refused.value) for fact in ("'valid'", "train"))
    messages.check(refused.value)


def test_a_name_that_begins_like_a_split_is_none() -> None:
    loaders = {"validation": loader(Still(), 8, shuffle=False)}
    with pytest.raises(ConfigError, match="'valid'"):
        plain(built(MLP), Still(), [Validate("1")], loaders=loaders).fit()
