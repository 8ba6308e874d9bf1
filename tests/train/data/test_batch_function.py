"""Whole batches from one function."""

from __future__ import annotations

from typing import Any

import pytest

import roost
from roost.base.errors import ContractError
from tests.messages import Messages


class Database:
    """With a state of its own."""

    def __init__(self) -> None:
        self.seen = 0

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def count(db: Database, index: int, augment: bool) -> tuple[Any, int]:
    db.seen += 1
    return (db.seen, index, augment), index + 3


def test_the_index_is_what_the_function_returned_last() -> None:
    one = roost.Sampled(count, Database())
    assert [next(one) for _ in range(2)] == [(1, 0, True), (2, 3, True)]
    assert one.state_dict() == {"index": 6, "state": {"seen": 2}}
    other = roost.Sampled(count, Database())
    other.load_state_dict(one.state_dict())
    assert next(other) == next(one) == (3, 6, True)
    assert next(one.for_evaluation()) == (4, 9, False)


def test_a_state_without_methods_is_saved_whole() -> None:
    one = roost.Sampled(lambda state, index, augment: (state["x"], index), {"x": 5})
    assert one.state_dict() == {"index": 0, "state": {"x": 5}}
    one.load_state_dict({"index": 2, "state": {"x": 7}})
    assert next(one) == 7 and one.index == 2


@pytest.mark.parametrize(
    ("returned", "received"),
    [(None, "'NoneType'"), ((1, 2, 3), "'3 values'"), ([1, 2], "'list'")],
)
def test_a_function_that_returns_no_pair(returned: Any, received: str, messages: Messages) -> None:
    def draws(state: Any, index: Any, augment: bool) -> Any:
        return returned

    with pytest.raises(ContractError) as refused:
        next(roost.Sampled(draws))
    assert "draws()" in refused.value.message and received in refused.value.detail
    messages.check(refused.value)


def test_one_that_ends_says_so(messages: Messages) -> None:
    def draws(state: Any, index: Any, augment: bool) -> Any:
        raise StopIteration

    with pytest.raises(ContractError) as refused:
        next(roost.Sampled(draws))
    assert all(fact in str(refused.value) for fact in ("draws()", "StopIteration"))
    messages.check(refused.value)


@pytest.mark.parametrize("length", [0, -2, 1.5])
def test_a_length_that_is_no_number_of_batches(length: Any, messages: Messages) -> None:
    with pytest.raises(ContractError) as refused:
        roost.Sampled(count, length=length)
    assert repr(length) in refused.value.detail
    messages.check(refused.value)


def test_it_needs_a_function(messages: Messages) -> None:
    with pytest.raises(ContractError) as refused:
        roost.Sampled(3)
    assert all(fact in str(refused.value) for fact in ("Sampled", "3"))
    messages.check(refused.value)  # type: ignore[arg-type]
