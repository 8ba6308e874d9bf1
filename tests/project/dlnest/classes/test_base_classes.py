"""What life_cycle, dataset_base and runner_base do where a project defines nothing."""

from __future__ import annotations

import pytest

from roost.base.errors import ContractError
from roost.project.dlnest.classes.dataset_base import DatasetBase
from roost.project.dlnest.classes.life_cycle import LifeCycleBase
from roost.project.dlnest.classes.runner_base import RunnerBase
from tests.messages import Messages

PARTS = (
    "All", "DatasetInit", "ModelInit", "Train", "OneEpoch", "ModelOneStep", "Visualize", "Validation",
    "ValidateABatch", "ValidationAnalyze", "SaveModel",
)  # fmt: skip


def test_every_part_has_a_method_before_and_after_it() -> None:
    life_cycle = LifeCycleBase()
    assert all(getattr(life_cycle, f"{letter}{part}")() is None for letter in "BA" for part in PARTS)
    own = {name for name in dir(LifeCycleBase) if name[:1] in "BA" and name[1:2].isupper()}
    assert own == {f"{letter}{part}" for letter in "BA" for part in PARTS}


def test_an_error_that_ends_the_training_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("the loss is bad")
    except ValueError as error:
        LifeCycleBase().trainAborting(error)
    printed = capsys.readouterr().err
    assert "Traceback" in printed and printed.endswith("ValueError: the loss is bad\n")


def test_a_runner_may_define_few_methods(messages: Messages) -> None:
    runner = RunnerBase()
    runner.init({}, {})
    runner.initOptimizer()
    runner.visualize(epoch=0, log={}, iter=0)
    runner.validationInit()
    runner.validateABatch([1], 0)
    runner.validationAnalyze({})
    assert runner.initLog() == {} and not hasattr(runner, "validate")
    with pytest.raises(ContractError) as refused:
        runner.runOneStep([1], {}, 0, 0)
    messages.check(refused.value)
    with pytest.raises(ContractError) as refused:
        DatasetBase().init({})
    messages.check(refused.value)
