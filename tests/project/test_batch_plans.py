from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset

from roost.base.errors import ConfigError, ContractError
from roost.config.settings import Settings, parse_settings
from roost.project.batch_plans import batch_limits, build_plan, describe_set, limit_batches
from roost.train.data.plans.batch_plan import BatchPlan, Draw
from roost.train.data.plans.dataset_mixes import ChainedPlan, CombinedPlan, MixedPlan
from roost.train.data.plans.length_batches import LengthPlan
from roost.train.data.plans.virtual_epochs import LimitedEpochs, VirtualEpochs
from roost.train.data.plans.weighted_sampling import WeightedPlan
from tests.messages import Messages


def settings(**data: Any) -> Settings:
    return parse_settings({"runner": "a.py:A", "dataset": "b.py:B", "max_steps": 1, "seed": 3, "data": data})


class Texts(list[int]):
    """Ten samples of 1 to 10 tokens."""

    def __init__(self, size: int = 10) -> None:
        super().__init__(range(size))
        self.weights = [1.0] * size

    def lengths(self) -> np.ndarray[Any, Any]:
        return np.arange(1, len(self) + 1)


def place(key: str) -> str:
    return f"line of {key}"


def train(dataset: Any, **data: Any) -> Any:
    return build_plan(dataset, settings(**data), training=True, where=place)


def indices(plan: Any, epoch: int = 0) -> list[list[int]]:
    return [draw.indices for draw in plan.batches(epoch)]


def test_the_least() -> None:
    plan = train(range(100))
    assert isinstance(plan, BatchPlan) and plan == BatchPlan(100, 32, seed=3)
    assert indices(build_plan(range(4), settings(batch_size=3))) == [[0, 1, 2], [3]]
    assert indices(train(range(4), batch_size=3, shuffle=False, drop_last=True)) == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"weighted": True}, WeightedPlan),
        ({"sort_by_length": "descending"}, LengthPlan),
        ({"max_tokens": 20}, LengthPlan),
        ({"steps_per_epoch": 7}, VirtualEpochs),
        ({"limit_train_batches": 1}, LimitedEpochs),
        ({"limit_train_batches": 1, "steps_per_epoch": 7}, LimitedEpochs),
        ({"limit_valid_batches": 1}, BatchPlan),
    ],
)
def test_each_setting_has_its_plan(data: dict[str, Any], kind: type) -> None:
    assert type(train(Texts(), **data)) is kind
    is_cut = data.get("max_tokens") is not None
    plan = build_plan(Texts(), settings(**data), "test", training=False)
    assert type(plan) is (LengthPlan if is_cut else BatchPlan), "an evaluation takes the set as it stands"


def test_what_the_plans_are_told(messages: Messages) -> None:
    assert train(Texts(), weighted=True, batch_size=5).num_batches == 2
    assert indices(train(Texts(4), sort_by_length="descending", batch_size=2)) == [[3, 2], [1, 0]]
    said = train(Texts(), max_tokens=20, shuffle=False).describe()
    assert " 20 " in said
    messages.check(said)
    sums = train(Texts(), max_tokens=20, count_padding=False, shuffle=False, batch_size=4)
    assert indices(sums) == [[0, 1, 2, 3], [4, 5, 6], [7, 8], [9]]
    assert indices(build_plan(Texts(4), settings(max_tokens=8), "valid")) == [[0, 1], [2, 3]]


def test_a_split_has_limits_of_its_own() -> None:
    both = settings(max_tokens=9, batch_size=4, valid={"batch_size": 7}, test={"max_tokens": 5})
    found = {name: batch_limits(both.data, name) for name in ("train", "valid/a", "test")}
    assert [(one.num_samples, one.max_tokens) for one in found.values()] == [(4, 9), (7, None), (None, 5)]
    assert (found["valid/a"].samples_key, found["test"].tokens_key) == (
        "data.valid.batch_size",
        "data.test.max_tokens",
    )
    assert batch_limits(settings(max_tokens=9).data, "valid").num_samples is None
    assert batch_limits(settings().data, "valid").num_samples == 32


@pytest.mark.parametrize(
    ("limit", "num_batches", "expected"),
    [(3, 10, 3), (30, 10, 10), (0.5, 10, 5), (0.29, 100, 29), (0.01, 10, 1), (1.0, 7, 7)],
)
def test_limits(limit: float, num_batches: int, expected: int) -> None:
    assert limit_batches(limit, num_batches) == expected


def test_the_limits_of_each_split() -> None:
    asked = settings(batch_size=1, limit_train_batches=0.5, limit_valid_batches=2, limit_test_batches=0.01)
    plans = {name: build_plan(range(10), asked, name) for name in ("train", "valid/a", "test")}
    assert {name: plan.num_batches for name, plan in plans.items()} == {"train": 10, "valid/a": 2, "test": 1}
    assert build_plan(range(10), asked, training=True).num_batches == 5


def test_epochs_of_so_many_steps_count_steps() -> None:
    asked = settings(batch_size=2, steps_per_epoch=3)
    plan = build_plan(range(8), asked, training=True, batches_per_step=2)
    assert plan.num_batches == 6
    whole = build_plan(range(8), settings(batch_size=2), training=True)
    assert indices(plan) + indices(plan, 1)[:2] == indices(whole) + indices(whole, 1)


# ---- several sets ---------------------------------------------------------------------------------------

SETS: Mapping[str, Any] = {"clean": Texts(8), "noisy": Texts(4)}


def test_a_batch_of_each() -> None:
    plan = train(SETS, mix={"batch_sizes": {"noisy": 1}}, batch_size=2)
    assert isinstance(plan, CombinedPlan) and plan.how == "min_size" and plan.num_batches == 4
    assert train(SETS, mix={"mode": "max_size_cycle"}, batch_size=2).num_batches == 4
    (draws, *_) = plan.batches(0)
    assert {name: len(draw.indices) for name, draw in draws.items()} == {"clean": 2, "noisy": 1}
    assert isinstance(train(SETS), CombinedPlan), "the default"


def test_sets_of_one_size_are_not_shuffled_alike() -> None:
    plan = train({"a": range(50), "b": range(50)}, batch_size=50)
    (draws,) = plan.batches(0)
    assert draws["a"].indices != draws["b"].indices and sorted(draws["a"].indices) == list(range(50))


def test_one_set_after_the_other() -> None:
    plan = train(SETS, mix={"mode": "sequential", "batch_sizes": {"clean": 4}}, batch_size=2, shuffle=False)
    assert isinstance(plan, ChainedPlan)
    assert indices(plan) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [10, 11]]
    sorted_in_each = train(SETS, mix={"mode": "sequential"}, sort_by_length="descending", batch_size=8)
    assert indices(sorted_in_each) == [[7, 6, 5, 4, 3, 2, 1, 0], [11, 10, 9, 8]]


def test_all_sets_in_each_batch() -> None:
    plan = train(SETS, mix={"mode": "weighted", "weights": {"noisy": 3, "clean": 1}}, batch_size=4)
    assert isinstance(plan, MixedPlan) and plan.counts == [3, 9], "in the order of the sets"
    assert all(isinstance(draw, Draw) for draw in plan.batches(0))


# ---- errors ---------------------------------------------------------------------------------------------


class Wrong(Texts):
    def __init__(self, **columns: Any) -> None:
        super().__init__(3)
        for name, value in columns.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    ("dataset", "data", "setting", "facts"),
    [
        (
            range(3),
            {"max_tokens": 9},
            "data.max_tokens",
            ["(range)", "9 (at line of data.max_tokens)", "`lengths`"],
        ),
        (
            range(3),
            {"sort_by_length": "ascending"},
            "data.sort_by_length",
            ["(range)", "`lengths`"],
        ),
        (
            range(3),
            {"weighted": True},
            "data.weighted",
            ["(range)", "`weights`", "True"],
        ),
        (
            Wrong(weights=[1, 2]),
            {"weighted": True},
            "data.weighted",
            ["3 ", "2 ", "(at line of data.weighted)"],
        ),
        (
            Wrong(weights=[1, -2, 0]),
            {"weighted": True},
            "data.weighted",
            ["sample 1 ", "-2 (at line of data.weighted)"],
        ),
        (
            Wrong(weights=lambda index: 1.0),
            {"weighted": True},
            "data.weighted",
            ["weights()", "(Wrong)"],
        ),
        (Wrong(weights=[0, 0, 0]), {"weighted": True}, "data.weighted", ["0"]),
        (Wrong(weights="abc"), {"weighted": True}, "data.weighted", []),
        (Wrong(lengths=[1.5, 1, 1]), {"max_tokens": 9}, "data.max_tokens", ["sample 0 ", "1.5"]),
        (
            Texts(),
            {"max_tokens": 9},
            "data.max_tokens",
            ["sample 9 ", "10 tokens", "9 (at line of data.max_tokens)"],
        ),
        (range(0), {}, None, ["training set"]),
        (
            range(3),
            {"drop_last": True, "batch_size": 4},
            "data.batch_size",
            ["3 samples", "4 (at line of data.batch_size)"],
        ),
        (range(1), {"drop_last": True}, "data.batch_size", ["1 sample", "32"]),
        (
            SETS,
            {"drop_last": True, "mix": {"batch_sizes": {"noisy": 5}}, "batch_size": 2},
            "data.mix.batch_sizes.noisy",
            ["noisy ", "4 samples", "5 (at line of data.mix.batch_sizes.noisy)"],
        ),
        (
            SETS,
            {"mix": {"mode": "weighted", "weights": {"clean": 1, "noisi": 2}}},
            "data.mix.weights.noisi",
            ["'noisi'", "2.0 (at line of data.mix.weights.noisi)", "'noisy'", "clean, noisy"],
        ),
        (SETS, {"mix": {"batch_sizes": {"x": 2}}}, "data.mix.batch_sizes.x", ["'x'"]),
        (
            SETS,
            {"mix": {"mode": "weighted", "weights": {"clean": 1}}},
            "data.mix.weights",
            ["noisy ", "{'clean': 1.0} (at line of data.mix.weights.clean)"],
        ),
        (
            SETS,
            {"mix": {"mode": "weighted", "weights": {"clean": 0, "noisy": 0}}},
            "data.mix.weights",
            ["0"],
        ),
        ({"a": [1], "b": [2]}, {"weighted": True}, "data.weighted", [" a (list)"]),
    ],
)
def test_what_does_not_fit(
    dataset: Any, data: dict[str, Any], setting: str | None, facts: list[str], messages: Messages
) -> None:
    with pytest.raises((ConfigError, ContractError)) as caught:
        train(dataset, **data)
    assert caught.value.setting == setting and all(fact in str(caught.value) for fact in facts)
    messages.check(caught.value)


def test_a_set_that_is_evaluated_is_named_with_its_own_setting(messages: Messages) -> None:
    asked = settings(valid={"max_tokens": 3})
    with pytest.raises(ConfigError, match=r"x: sample 9 .*10.* 3") as refused:
        build_plan(Texts(), asked, "valid/x")
    assert refused.value.setting == "data.valid.max_tokens"
    messages.check(refused.value)
    with pytest.raises(ContractError, match=r"\(range\)") as refused:
        build_plan(range(3), asked, "valid")
    assert refused.value.setting == "data.valid.max_tokens"
    messages.check(refused.value)


def test_parts_and_unions_of_a_set_have_its_columns(messages: Messages) -> None:
    whole: Any = Texts()
    plain: Any = [1]
    part: Any = Subset(whole, [9, 0, 4])
    assert indices(train(part, sort_by_length="ascending", batch_size=1)) == [[1], [2], [0]]
    assert train(ConcatDataset([part, whole]), weighted=True, batch_size=13).num_batches == 1
    assert train(Wrong(weights=torch.tensor([1, 2, 3])), weighted=True).num_batches == 1
    with pytest.raises(ContractError) as refused:
        train(ConcatDataset([part, plain]), weighted=True)
    assert refused.value.setting == "data.weighted"
    messages.check(refused.value)


def test_names_in_words(messages: Messages) -> None:
    for name in ("train", "valid/noisy", "test"):
        messages.check(describe_set(name))
    assert describe_set("valid/noisy").endswith(" noisy") and describe_set("train") != describe_set("test")


def test_an_error_of_the_set_itself_is_left_alone() -> None:
    def weights() -> Any:
        raise TypeError("cannot add")

    with pytest.raises(TypeError, match="cannot add"):
        train(Wrong(weights=weights), weighted=True)
