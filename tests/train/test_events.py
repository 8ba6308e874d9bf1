from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from roost.base import state_tree
from roost.base.errors import ContractError
from roost.train import events
from roost.train.distributed.ranks import Ranks
from roost.train.events import Events
from roost.train.hook import Hook, Phase
from roost.train.hooks import Records, Schedule
from roost.train.optim.optimizer import Optim
from roost.train.step.stepper import Stepper
from tests.messages import Messages
from tests.train.parts import MLP, Still, built, plain
from tests.train.reads import CountsReads
from tests.train.team import team

NUMBERS = st.floats(-1e6, 1e6)


@settings(deadline=None)
@given(
    st.lists(st.tuples(NUMBERS, st.floats(0.1, 100.0), st.booleans(), st.booleans()), min_size=1, max_size=30)
)
def test_a_row_is_the_weighted_mean(steps: list[tuple[float, float, bool, bool]]) -> None:
    """Of numbers and tensors, with weights that are numbers or tensors."""
    found = Events()
    for value, weight, tensor_value, tensor_weight in steps:
        found.put(
            {"x": torch.tensor(value, dtype=torch.float64) if tensor_value else value},
            torch.tensor(weight, dtype=torch.float64) if tensor_weight else weight,
        )
    total = sum(weight for _, weight, *_ in steps)
    expected = math.fsum(value * weight for value, weight, *_ in steps) / total
    assert found.row()["x"] == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert not found
    assert found.row() == {}


def test_each_name_has_the_mean_of_the_steps_that_gave_it() -> None:
    found = Events()
    found.put({"often": 1.0, "loss": torch.tensor(2.0)}, 3)
    found.put({"often": 4.0}, 1)
    found.put({"often": 4.0, "seldom": torch.tensor([8])})
    assert found.row() == {"often": 11 / 5, "loss": 2.0, "seldom": 8.0}


def test_a_weight_among_the_values_goes_before_the_samples() -> None:
    found = Events()
    found.put({"loss": torch.tensor(1.0), "weight": torch.tensor(30)}, 4)
    found.put({"loss": torch.tensor(5.0), "weight": torch.tensor(10)}, 4)
    assert found.row() == {"loss": 2.0}


def test_single_precision_values_are_added_up_in_double() -> None:
    found = Events()
    for _ in range(3000):
        found.put({"x": torch.tensor(1.1)})
    assert found.row()["x"] == pytest.approx(float(torch.tensor(1.1).double()), rel=1e-15)


@pytest.mark.parametrize("steps", [5, events._FOLD_STEPS - 1, events._FOLD_STEPS, events._FOLD_STEPS + 3])
def test_an_open_window_goes_on_exactly(steps: int) -> None:
    """Wherever it is cut: the sums are folded after the same steps as without the cut."""
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(2 * events._FOLD_STEPS + 10, generator=generator)
    whole, first = Events(), Events()
    for number, value in enumerate(values):
        whole.put({"x": value, "y": float(value)}, 1 + number % 3)
        if number < steps:
            first.put({"x": value, "y": float(value)}, 1 + number % 3)
    assert bool(first)
    skeleton, leaves = state_tree.pack(first.state_dict())
    second = Events()
    second.load_state_dict(state_tree.unpack(skeleton, leaves))
    for number in range(steps, len(values)):
        second.put({"x": values[number], "y": float(values[number])}, 1 + number % 3)
    assert second.row() == whole.row()


def test_memory_stays_bounded() -> None:
    found = Events()
    for _ in range(3 * events._FOLD_STEPS):
        found.put({"x": 1.0})
    assert len(found._waiting) < events._FOLD_STEPS


@pytest.mark.parametrize(
    "value",
    [torch.ones(2), torch.ones(2, 1), "much", None, [1.0, 2.0]],
    ids=["(2,)", "(2, 1)", "str", "None", "list"],
)
@pytest.mark.parametrize("before", [(), (1.0,), (torch.tensor(1.0),)], ids=["alone", "number", "tensor"])
def test_what_is_no_number_is_named(value: Any, before: tuple[Any, ...], messages: Messages) -> None:
    found = Events()
    for good in before:
        found.put({"bad": good})
    found.put({"good": 1.0, "bad": value})
    with pytest.raises(ContractError, match="train/bad") as refused:
        found.row()
    if not before:
        messages.check(refused.value)


@pytest.mark.parametrize(
    "read",
    [
        float,
        bool,
        int,
        Tensor.item,
        Tensor.tolist,
        lambda x: torch.equal(x, x),
        lambda x: x[x > 0],
        torch.unique,
    ],
)
def test_the_counter_counts(read: Any) -> None:
    value = torch.ones(())
    with CountsReads() as counter:
        read(value)
    assert counter.reads > 0


@pytest.mark.parametrize("accumulation", [1, 2])
def test_nothing_is_read_back_between_rows(accumulation: int, tmp_path: Any) -> None:
    """Clipping, a scheduler, weights and `Runner.log`; each row costs one read."""
    counter = CountsReads()
    seen: list[int] = []

    class Weighted(MLP):
        def loss(self, batch: Any) -> dict[str, Tensor]:
            values = super().loss(batch)
            self.log(extra=values["accuracy"], fixed=1.0)
            return {**values, "weight": batch[0].abs().sum()}

    class Looks(Hook):
        phase = Phase.REPORT

        def on_start(self, trainer: Any) -> None:
            counter.__enter__()  # what comes before may read: it is no step

        def on_step(self, trainer: Any) -> None:
            seen.append(counter.reads)

        def on_stop(self, trainer: Any, reason: str) -> None:
            counter.__exit__(None, None, None)

    runner = built(Weighted)
    optimizer = torch.optim.AdamW(runner.parameters(), lr=0.01, fused=True)
    optim = Optim(optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 5), max_grad_norm=1.0)
    hooks = [Schedule(), Records(tmp_path, 20), Looks()]
    stepper = Stepper(optim, accumulation=accumulation)
    trainer = plain(runner, Still(), hooks, until=40, stepper=stepper)
    trainer.fit()
    reads = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    assert reads == [1 if step % 20 == 0 else 0 for step in range(1, 41)]


def test_folding_reads_nothing_back() -> None:
    found = Events()
    with CountsReads() as counter:
        for number in range(2 * events._FOLD_STEPS):
            found.put({"x": torch.tensor(1.0), "y": 1.0, "z": torch.ones(1) if number % 2 else 2.0})
    assert counter.reads == 0


def test_names_side_by_side_do_not_round_each_other() -> None:
    found = Events()
    loss = torch.tensor(0.5, dtype=torch.bfloat16)
    found.put({"loss": loss, "tokens": torch.tensor(20_000_001), "n": 1001})
    assert found.row() == {"loss": 0.5, "tokens": 20_000_001.0, "n": 1001.0}


# --- what is not finite -----------------------------------------------------------------------------------


def put(found: Events, steps: range, bad: dict[int, Any], skips: set[int] = frozenset()) -> None:  # type: ignore[assignment]
    """A loss and a norm at each step, with NaN in the one that ``bad`` names."""
    for step in steps:
        values = {
            name: torch.tensor(math.nan if bad.get(step) == name else 1.0) for name in ("loss", "grad_norm")
        }
        extra = {"skipped": torch.tensor(float(step in skips))} if skips else {}
        found.put({**values, **extra, "other": math.nan}, 2.0, step)


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
@pytest.mark.parametrize("first", [1, events._FOLD_STEPS, events._FOLD_STEPS + 1, 2 * events._FOLD_STEPS + 5])
def test_the_first_bad_step_is_known_without_cutting_the_row(name: str, first: int) -> None:
    found, untouched = Events(), Events()
    last = 2 * events._FOLD_STEPS + 9
    for one in (found, untouched):
        put(one, range(1, first), {})
    assert found.bad_step() is None
    for one in (found, untouched):
        put(one, range(first, last), {first: name, first + 1: "loss"})
    assert found.bad_step() == first
    skeleton, leaves = state_tree.pack(found.state_dict())
    assert (skeleton, leaves.keys()) == (state_tree.pack(untouched.state_dict())[0], leaves.keys())
    row = found.row()
    assert repr(row) == repr(untouched.row()) and found.first_bad == untouched.first_bad == first


def test_of_a_skipped_step_nothing_need_be_finite() -> None:
    found = Events()
    put(found, range(1, 5), {2: "loss", 4: "grad_norm"}, {2, 4})
    assert found.bad_step() is None
    assert found.row()["skipped"] == 2.0 and found.first_bad is None


def test_a_row_forgets_what_was_bad() -> None:
    found = Events()
    put(found, range(1, 5), {2: "loss"})
    found.row()
    put(found, range(5, 7), {})
    assert found.bad_step() is None and Events().bad_step() is None
    found.row()
    assert found.first_bad is None


# ---- looking at the open window ------------------------------------------------------------------------


@given(st.lists(st.tuples(NUMBERS, st.floats(0.0, 100.0), st.booleans()), max_size=12), st.integers(0, 12))
def test_a_look_is_the_row_to_the_bit_and_changes_nothing(
    steps: list[tuple[float, float, bool]], cut: int
) -> None:
    looked, plainly = Events(), Events()
    for number, (value, weight, skipped) in enumerate(steps):
        for one in (looked, plainly):
            if number == cut:
                one._fold()
            one.begin_step()
            one.log({"beside": value})
            flag = {"skipped": torch.tensor(float(skipped))} if number % 2 else {}
            one.put({"loss": torch.tensor(value), **flag}, weight, step=number + 1)
        first, second = looked.peek(), looked.peek()
        assert repr(first) == repr(second)
    look, before = looked.peek(), looked.first_bad
    assert before is None, "a look at what is not finite is no row"
    assert repr(look) == repr(plainly.row()) == repr(looked.row())
    assert not looked


def test_values_of_a_step_that_was_skipped_are_left_out_with_it() -> None:
    found = Events()
    for skipped in (0.0, 1.0):
        found.begin_step()
        found.put({"loss": torch.tensor(1.0), "skipped": torch.tensor(skipped)})
        found.log({"stats/grad_norm": torch.tensor(2.0 if not skipped else math.nan)}, of_step=True)
        found.log({"clock": 3.0 + skipped})
    assert found.row() == {"loss": 1.0, "stats/grad_norm": 2.0, "clock": 3.5, "skipped": 1.0}


def test_it_knows_what_a_row_has_given_also_after_a_restart() -> None:
    first, second = Events(), Events()
    first.put({"loss": 1.0})
    assert not first.has_reported("loss")
    first.row()
    second.load_state_dict(first.state_dict())
    assert first.has_reported("loss") and second.has_reported("loss") and not second.has_reported("other")


def test_statistics_may_be_infinite() -> None:
    found = Events()
    found.put(
        {"loss": 1.0, "stats/grad_norm": torch.tensor(math.inf), "stats/grad_norm/a.loss": math.nan}, step=4
    )
    assert found.bad_step() is None
    found.row()
    assert found.first_bad is None


# ---- several ranks -------------------------------------------------------------------------------------


def steps_of(found: Events, rank: int) -> None:
    """Four steps, the third skipped: a loss by weight, a value that rank 1 alone has, one that is logged."""
    for step in range(1, 5):
        found.begin_step()
        found.log({"beside": 1.0 + rank})
        own = {"seldom": 7.0 + step} if rank == 1 else {}
        skipped = torch.tensor(float(step == 3))
        loss = torch.tensor(0.1 * step + rank)
        found.put({"loss": loss, **own, "skipped": skipped}, 2.0 + rank, step)


def test_ranks_have_one_row() -> None:
    def rows(ranks: Ranks) -> list[Any]:
        found = Events(ranks)
        assert found.row() == {} == found.peek()
        steps_of(found, ranks.rank)
        look = found.peek()
        row = found.row()
        assert look == row and not found and found.first_bad is None
        found.put({"loss": math.nan if ranks.rank == 2 else 1.0}, step=9 - ranks.rank)
        bad = found.bad_step()
        found.row()
        return [row, list(row), bad, found.first_bad, found.has_reported("seldom")]

    first, *others = team(3, rows)
    row, names, *rest = first
    assert names == ["beside", "loss", "seldom", "skipped"] and rest == [7, 7, True]
    losses = [(2.0 + rank, 0.1 * step + rank) for rank in range(3) for step in (1, 2, 4)]
    assert row["loss"] == pytest.approx(sum(w * v for w, v in losses) / sum(w for w, _ in losses), rel=1e-6)
    assert (row["beside"], row["seldom"], row["skipped"]) == (2.0, pytest.approx(28 / 3), 1.0)
    assert others == [first, first]


@pytest.mark.parametrize("folded", [False, True])
def test_a_window_of_several_ranks_goes_on_in_one(folded: bool) -> None:
    """With the row that the ranks would have cut."""

    def row(ranks: Ranks) -> dict[str, float]:
        found = Events(ranks)
        steps_of(found, ranks.rank)
        return found.row()

    one = Events()
    for rank in range(3):
        other = Events()
        steps_of(other, rank)
        if folded:
            other._fold()
        skeleton, leaves = state_tree.pack(other.state_dict())
        state = state_tree.unpack(skeleton, leaves)
        one.merge(state) if rank else one.load_state_dict(state)
    assert one.bad_step() is None
    assert one.row() == pytest.approx(team(3, row)[0], rel=1e-12)


def test_a_merged_window_knows_its_first_bad_step() -> None:
    one, other = Events(), Events()
    one.put({"loss": math.nan}, step=8)
    other.put({"loss": math.nan, "only": 1.0}, step=5)
    other.row()
    other.put({"loss": math.nan}, step=6)
    one.merge(other.state_dict())
    assert one.bad_step() == 6 and one.has_reported("only")
