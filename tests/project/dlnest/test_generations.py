from __future__ import annotations

from typing import Any

import pytest

from roost.base.errors import ContractError
from roost.project.dlnest.classes.life_cycle import LifeCycleBase
from roost.project.dlnest.classes.runner_base import RunnerBase
from roost.project.dlnest.generations import DATASET, LIFE_CYCLE, RUNNER, Generation, Role, generation_of
from tests.messages import Messages


class Inherited(RunnerBase):
    pass


class Current(RunnerBase):
    def __init__(self, args: Any, plugins: Any = (), status: Any = None) -> None: ...


class Older(RunnerBase):
    def __init__(self, _envType: str, rank: int = -1, worldSize: int = -1) -> None: ...


class OlderWithoutWorldSize(RunnerBase):
    def __init__(self, _envType: str, rank: int = -1) -> None: ...


class Oldest(RunnerBase):
    def __init__(self, args: Any, datasetInfo: Any) -> None: ...


class PassesAllOn(RunnerBase):
    def __init__(self, *given: Any, **named: Any) -> None: ...


class Unknown(RunnerBase):
    def __init__(self, config: Any, device: Any, name: Any) -> None: ...


class OldestLifeCycle(LifeCycleBase):
    def __init__(self, model: Any, dataset: Any, trainProcess: Any, analyzeProcess: Any) -> None: ...


class OldestDataset:
    def __init__(self, args: Any) -> None: ...


@pytest.mark.parametrize(
    ("found", "role", "generation"),
    [
        (Inherited, RUNNER, "0.3.2"), (Current, RUNNER, "0.3.2"), (PassesAllOn, RUNNER, "0.3.2"),
        (Older, RUNNER, "0.3.0"), (OlderWithoutWorldSize, RUNNER, "0.3.0"), (Oldest, RUNNER, "0.2"),
        (LifeCycleBase, LIFE_CYCLE, "0.3.2"), (OldestLifeCycle, LIFE_CYCLE, "0.2"),
        (OldestDataset, DATASET, "0.2"),
    ],
)  # fmt: skip
def test_constructors_name_their_generation(found: type, role: Role, generation: str) -> None:
    assert generation_of(found, role) == Generation(generation)


def test_an_unknown_generation(messages: Messages) -> None:
    with pytest.raises(ContractError) as refused:
        generation_of(Unknown, RUNNER, "args.json:3")
    messages.check(refused.value)
