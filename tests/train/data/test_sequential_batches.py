"""An epoch is so many batches of what can only be drawn one after the other, from any position."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from roost.base.errors import CheckpointError, ConfigError, ContractError
from roost.train.data import sequential_batches
from roost.train.data.sequential_batches import SequentialBatches, SizedBatch, empty_pass_error
from tests.messages import Messages
from tests.train.data.sets import saved, take


class Counting(SequentialBatches):
    """Its batches are their numbers; it remembers where it was begun."""

    def __init__(self, num_batches: int | None = 3) -> None:
        super().__init__(num_batches, "the training set")
        self.at = 0
        self.begun: list[int] = []
        self.fails_at: int | None = None
        self.kept: Any = None

    def _draw_endless(self, state: Any) -> Generator[SizedBatch, None, None]:
        self.at = state["at"] if state else 0
        self.begun.append(self.at)
        while True:
            if self.at == self.fails_at:
                raise ValueError("cannot read")
            self.at += 1
            yield self.at - 1, 1

    def _draw_pass(self) -> Generator[SizedBatch, None, None]:
        yield from ((number, 1) for number in range(5))

    def _state(self) -> dict[str, Any]:
        return {"at": self.at, "kept": self.kept}

    @property
    def _state_survives_errors(self) -> bool:
        return True

    def describe(self) -> str:
        return "numbers"


def values(passes: SequentialBatches, number: int, position: int = 0) -> list[Any]:
    return [batch.value for batch in take(passes, number, *divmod(position, 3))]


def test_epochs_are_cut_out_of_the_endless_batches() -> None:
    batches = take(Counting(), 7)
    assert [batch.value for batch in batches] == list(range(7))
    assert [batch.ends_epoch for batch in batches] == [False, False, True] * 2 + [False]


def test_any_position_is_reached_from_the_nearest_place_that_is_known() -> None:
    one = Counting()
    for position, begun in ((0, 0), (2, 2), (9, 4), (3, 0), (5, 5)):
        assert values(one, 2, position) == [position, position + 1]
        assert one.begun[-1] == begun


def test_a_state_goes_on_where_it_was() -> None:
    one, other = Counting(), Counting()
    assert one.state_dict() == {"position": 0, "num_batches": 3, "state": None}
    values(one, 4)
    other.load_state_dict(saved(one))
    assert values(other, 2, 4) == [4, 5] and other.begun == [4]
    longer = Counting(50)
    longer.load_state_dict(saved(one))
    state = saved(longer)  # a stop may come before the first batch
    assert take(longer, 1, 0, 7)[0].value == 4, "whatever its position is called now"
    third = Counting(50)
    third.load_state_dict(state)
    assert take(third, 1, 0, 7)[0].value == 4


def test_the_state_of_a_set_with_indices_does_not_fit(messages: Messages) -> None:
    with pytest.raises(CheckpointError) as refused:
        Counting().load_state_dict({"num_samples": {"the training set": 9}})
    assert "the training set" in str(refused.value)
    messages.check(refused.value)


def test_an_error_leaves_the_state_of_the_last_batch() -> None:
    one = Counting()
    one.fails_at = 4
    with pytest.raises(ValueError, match="cannot read"):
        values(one, 9)
    assert one.state_dict()["position"] == 4
    one.fails_at = None
    assert values(one, 1, 6) == [6] and one.begun == [0, 4], "what was passed over is dropped"


def test_an_evaluation_is_one_pass_at_most_as_long_as_is_said() -> None:
    assert [(batch.value, batch.ends_epoch) for batch in Counting().once()] == [
        (0, False),
        (1, False),
        (2, True),
    ]
    assert [batch.ends_epoch for batch in Counting(None).once()] == [False] * 5, "the length is unknown"
    assert len(Counting().excerpt([range(1), range(4, 5)])) == 2


def test_a_state_that_cannot_be_saved(messages: Messages) -> None:
    one = Counting()
    one.kept = Counting()
    with pytest.raises(ContractError) as refused:
        values(one, 1)
    assert all(fact in str(refused.value) for fact in ("the training set", "Counting"))
    messages.check(refused.value)


def test_errors(messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        len(Counting(None))
    assert refused.value.setting == "data.steps_per_epoch"
    assert "the training set" in str(refused.value)
    messages.check(refused.value)
    assert "iter() of it" in str(empty_pass_error("it", 1))
    messages.check(empty_pass_error("it", 1))
    assert Counting().redraw(0, 0, 1) is None and Counting().sample_indices(0, 0, 1) == []


def test_a_pass_of_unknown_length_that_does_not_end_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequential_batches, "REPORT_SECONDS", -1.0)
    assert len([*Counting(None).once()]) == 5
    said = capsys.readouterr().out.splitlines()
    assert "the training set" in said[1] and "2 batches" in said[1]
    assert "data.limit_valid_batches" in said[1]
    assert len([*Counting(3).once()]) == 3 and not capsys.readouterr().out
