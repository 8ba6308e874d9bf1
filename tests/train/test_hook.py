from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, ContractError
from roost.train.hook import Call, CallLists, Hook, Phase
from tests.messages import Messages
from tests.train.parts import MLP, Recipe, Steps, Still, StopAt, built, plain

STEPS = 7  # an epoch of `Still`


@pytest.mark.parametrize(
    ("every", "until", "steps"),
    [
        (None, 4, [1, 2, 3, 4]),
        (3, 8, [3, 6, 8]),
        ("3", 6, [3, 6]),
        ("1ep", 15, [7, 14, 15]),
        ("2ep", 14, [14]),
        ("2/ep", 14, [4, 7, 11, 14]),
        ("100/ep", 8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (["5", "1ep"], 12, [5, 7, 10, 12]),
        ((), 8, []),
        ("1h", 3, [3]),
        ("0.000000001s", 3, [1, 2, 3]),
    ],
)
def test_every(every: Any, until: int, steps: list[int]) -> None:
    """The last step counts as due for whatever has an interval."""
    hook = Steps(Phase.DECIDE, every)
    plain(built(MLP), Still(), [hook], until=until).fit()
    assert hook.steps == steps
    assert hook.epochs == list(range(STEPS, until + 1, STEPS))


def test_an_interval_of_time_begins_anew_after_each_call() -> None:
    call = Call(Steps(every=["10s", "100"]), epoch_only=False)
    call.schedule(0, STEPS, now=50.0)
    assert not call.due(5, now=59.9)
    assert call.due(5, now=60.0)
    call.schedule(5, STEPS, now=63.0)
    assert not call.due(6, now=72.9)
    assert call.due(7, now=73.0)
    assert call.due(100, now=64.0), "or the steps, whichever comes first"


@pytest.mark.parametrize("every", ["0", -1, "often", "3 epochs", True, 1.5])
def test_what_is_no_interval(every: Any, messages: Messages) -> None:
    with pytest.raises(ConfigError, match=r"Steps\.every") as refused:
        CallLists([Steps(every=[every])])
    assert repr(every) in str(refused.value)
    messages.check(refused.value)


def test_two_hooks_of_one_name(messages: Messages) -> None:
    with pytest.raises(ContractError, match=r"'Steps'.*`name`") as refused:
        CallLists([Steps(), Steps()])
    messages.check(refused.value)
    CallLists([Steps(), Steps(name="other")])


def test_what_is_no_hook(messages: Messages) -> None:
    with pytest.raises(ContractError, match=r"'Records'.*roost\.Hook") as refused:
        CallLists(["Records"])  # type: ignore[list-item]
    messages.check(refused.value)


def test_only_overridden_methods_are_called() -> None:
    class Nothing(Hook):
        pass

    class Grandchild(Steps):
        pass

    lists = CallLists([Nothing(), Grandchild()])
    assert [type(hook) for hook in lists.hooks] == [Grandchild, Nothing]
    assert [hook.name for hook in lists.eval] == ["Steps"]
    assert [(call.hook.name, call.epoch_only) for call in lists.step] == [("Steps", False), ("Steps", True)]
    assert lists.start == lists.stop == lists.save == lists.before_save == lists.before_step == []


def test_table_is_in_calling_order(messages: Messages) -> None:
    class OnRequest(Hook):
        phase, every, serves = Phase.REPORT, (), "validate"
        name = "last"

        def on_step(self, trainer: object) -> None:
            """Has no state: REPORT comes after SAVE."""

    hooks = [
        Steps(Phase.SAVE, ["2ep", 5]),
        Steps(Phase.MODEL, name="first"),
        OnRequest(),
    ]
    table = CallLists(hooks).table()
    cells = [re.split(" {2,}", line) for line in table.splitlines()[1:]]
    assert [row[:3] for row in cells] == [
        ["MODEL", "first", "on_step on_epoch on_eval"],
        ["SAVE", "Steps", "on_step on_epoch on_eval"],
        ["REPORT", "last", "on_step"],
    ]
    assert cells[1][3] == "2ep 5"
    messages.check(table)


def test_the_base_class_has_no_state() -> None:
    hook = Hook()
    assert hook.state_dict() == {}
    hook.load_state_dict({})
    assert hook.name == "Hook"


def test_a_hook_after_the_save_may_have_no_state(messages: Messages) -> None:
    """A checkpoint would hold its state of the step before."""
    with pytest.raises(ContractError, match=r"Steps.*REPORT.*SAVE") as refused:
        CallLists([Steps(Phase.REPORT)])
    messages.check(refused.value)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"validate": "10min"}, ["validation", "10min"]),
        ({"log": ["5", "1h"]}, ["row", "5", "1h"]),
        ({"save": "10min"}, []),
        ({"validate": ["3", "1ep"], "log": "10/ep"}, []),
    ],
    ids=["validations", "rows", "saves", "steps"],
)
def test_rows_and_validations_by_the_clock_are_named(
    options: dict[str, Any], facts: list[str], tmp_path: Path, messages: Messages
) -> None:
    trainer = Recipe(**options).make(tmp_path, StopAt(2))
    trainer.fit()
    assert len(trainer.inexact) == bool(facts)
    for reason in trainer.inexact:
        assert reason.startswith("wall clock: ") and all(fact in reason for fact in facts)
        messages.check(reason)


class Monitoring(Hook):
    """Decides by a metric; two of them have one setting, as two of a project's own early stops have."""

    def __init__(self, name: str, monitor: str) -> None:
        self._name, self._monitor = name, monitor

    @property
    def name(self) -> str:
        return self._name

    def monitors(self, trainer: object) -> dict[str, str]:
        return {"monitor": self._monitor}


def test_hooks_are_found_by_their_kind_and_by_what_they_decide_by() -> None:
    first, second, other = Monitoring("a", "valid/loss"), Monitoring("b", "train/loss"), Steps()
    trainer = plain(built(MLP), Still(), [first, second, other])
    assert trainer.calls.of_kind(Monitoring) == [first, second]
    assert trainer.calls.monitors(trainer) == [("monitor", "valid/loss"), ("monitor", "train/loss")]
