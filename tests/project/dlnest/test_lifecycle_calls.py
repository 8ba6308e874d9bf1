from __future__ import annotations

from typing import Any

import pytest
import torch

from roost.base.errors import ContractError
from roost.project.dlnest.classes.life_cycle import LifeCycleBase
from roost.project.dlnest.lifecycle_calls import LifeCycleCalls
from roost.train.distributed.ranks import Ranks
from tests.train.team import team


class Answers(LifeCycleBase):
    """A life cycle whose methods answer as they are given."""

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        for name, answer in answers.items():
            setattr(self, name, lambda *given, answer=answer: answer)


@pytest.mark.parametrize(
    ("answer", "goes_on"), [(None, True), ("Skip", False), (True, True), (0, True), ("other", True)]
)
def test_a_part_follows_unless_its_method_returns_skip(answer: Any, goes_on: bool) -> None:
    assert LifeCycleCalls(Answers(BTrain=answer)).before("BTrain") is goes_on


def test_defaults_of_the_decisions() -> None:
    calls = LifeCycleCalls(LifeCycleBase())
    given = (0, {}, {})
    assert calls.decide("needSaveModel", *given)
    assert not any(
        calls.decide(name, *given) for name in ("needValidation", "holdThisCheckpoint", "needContinueTrain")
    )
    assert not calls.decide("needVisualize", 0, 0, {}, {})
    assert calls.before("BAll")


def test_decisions_get_the_arguments_of_its_readme() -> None:
    class Mine(LifeCycleBase):
        def needVisualize(self, epoch: int, iter: int, logdict: Any, args: Any) -> Any:
            return (epoch, iter, logdict, args) == (1, 2, {"a": 3}, {"b": 4})

    assert LifeCycleCalls(Mine()).decide("needVisualize", 1, 2, {"a": 3}, {"b": 4}) is True


def test_skip_where_nothing_can_be_skipped_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    calls = LifeCycleCalls(Answers(ATrain="Skip", BTrain="skip"))
    for _ in range(2):
        calls.after("ATrain")
        assert calls.before("BTrain")
    assert capsys.readouterr().out.splitlines() == [
        "ATrain returned 'Skip', which skips nothing: only methods before a part can skip it",
        "BTrain returned 'skip', which skips nothing: only 'Skip' does",
    ]


def test_answers_of_rank_0_hold_for_all() -> None:
    def work(ranks: Ranks) -> list[bool]:
        is_main = ranks.is_main
        calls = LifeCycleCalls(
            Answers(BOneEpoch="Skip" if is_main else None, needContinueTrain=is_main), ranks
        )
        alone = calls.before("BVisualize", this_rank_only=True) if is_main else True
        return [calls.before("BOneEpoch"), calls.decide("needContinueTrain", 0, {}, {}), alone]

    assert team(2, work) == [[False, True, True]] * 2


def test_what_the_project_defines() -> None:
    calls = LifeCycleCalls(Answers(BModelOneStep=None))
    assert calls.defines("BModelOneStep") and not calls.defines("AModelOneStep")


def test_a_decision_that_is_neither_true_nor_false() -> None:
    calls = LifeCycleCalls(Answers(needValidation=torch.tensor([True, False])))
    with pytest.raises(ContractError, match=r"needValidation\(\) must return True or False: .*ambiguous"):
        calls.decide("needValidation", 0, {}, {})
