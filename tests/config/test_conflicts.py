from __future__ import annotations

from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.config.conflicts import check_ranks
from roost.config.settings import Settings, typed


def settings(**values: Any) -> Settings:
    given = {"runner": "a.py:A", "dataset": "b.py:B", "max_steps": 1, **values}
    return typed(given, where=lambda key: f"line of {key}")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"weighted": True, "sort_by_length": "ascending"},
            "data.sort_by_length: cannot be together with data.weighted (at line of data.weighted): samples "
            "drawn by weight come in no other order, in batches of one size; received 'ascending' "
            "(at line of data.sort_by_length). To mend it: leave out one of the two",
        ),
        ({"weighted": True, "max_tokens": 9}, "data.max_tokens: cannot be together with data.weighted"),
        (
            {"count_padding": False},
            "data.count_padding: says how data.max_tokens counts, which is not set; received False "
            "(at line of data.count_padding)",
        ),
        (
            {"mix": {"weights": {"a": 1}}},
            "data.mix.weights: are for data.mix.mode: weighted alone; received {'a': 1.0} "
            "(at line of data.mix.weights.a). To mend it: set data.mix.mode: weighted (it is min_size)",
        ),
        (
            {"mix": {"mode": "weighted"}},
            "data.mix.mode: needs data.mix.weights; received 'weighted' (at line",
        ),
        (
            {"mix": {"mode": "weighted", "weights": {"a": 1}, "batch_sizes": {"a": 1}}},
            "data.mix.batch_sizes: cannot be together with data.mix.mode: weighted (at line of data.mix.mo",
        ),
        (
            {"mix": {"mode": "weighted", "weights": {"a": 1}}, "max_tokens": 9},
            "data.max_tokens: cannot be together with data.mix.mode: weighted",
        ),
        (
            {"mix": {"mode": "weighted", "weights": {"a": 1}}, "weighted": True},
            "data.weighted: cannot be together with data.mix.mode: weighted",
        ),
    ],
)
def test_what_cannot_go_together(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(data=data)
    assert message in str(caught.value)


def test_statistics_of_nothing() -> None:
    with pytest.raises(
        ConfigError, match=r"statistics: .* nothing would be recorded \(at line of statistics\)"
    ):
        settings(statistics={"gradients": False, "weights": False})
    with pytest.raises(
        ConfigError, match=r"statistics\.params: names no parameters; received \[\] \(at line"
    ):
        settings(statistics={"params": []})
    settings(statistics={"gradients": False, "weights": False, "updates": True})


def test_of_the_step() -> None:
    with pytest.raises(ConfigError, match="compile_dynamic: is for step_mode: compile alone"):
        settings(compile_dynamic=True)
    settings(compile_dynamic=True, step_mode="compile")


def test_several_learning_rates_are_a_sweep() -> None:
    one = {"class": "torch.optim.SGD", "lr": [1e-3, 1e-4]}
    with pytest.raises(ConfigError, match=r"optimizers\.g\.lr: expected a number.*mend.*g\.lr=0\.001,0"):
        settings(optimizers={"g": one})
    settings(optimizers={"g": {**one, "lr": 1e-3, "betas": [0.9, 0.99]}})


@pytest.mark.parametrize(("argument", "value"), [("lr", "abc"), ("lr", ""), ("weight_decay", "1,5")])
def test_a_text_is_no_number_of_an_optimizer_of_torch(argument: str, value: str) -> None:
    said = rf"optimizers\.g\.{argument}: expected a number; received '{value}'.*mend.*{argument}=0\.001"
    with pytest.raises(ConfigError, match=said):
        settings(optimizers={"g": {"class": "torch.optim.SGD", argument: value}})
    for fine in ("Model/Own.py:SGD", "torch.optim.SGD"):  # a class of the project may take any text
        given = value if fine.startswith("Model") else "${total_steps}"
        settings(optimizers={"g": {"class": fine, argument: given}})
    with pytest.raises(ConfigError, match="write 1e-3 without quotes"):
        settings(optimizers={"g": {"class": "torch.optim.SGD", argument: "1e-3"}})


@pytest.mark.parametrize("devices", [[], [1, 1]])
def test_gpus_are_named_once(devices: list[int]) -> None:
    with pytest.raises(
        ConfigError, match=r"devices: names (no GPU|a GPU twice); received \[.*at line of dev"
    ):
        settings(devices=devices)
    settings(devices=[1, 0])


@pytest.mark.parametrize(("key", "value"), [("backend", "nccl"), ("dist_backend", "gloo")])
def test_nobody_chooses_a_backend(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: there is no choice.*by gloo.*received '{value}'"):
        settings(**{key: value})
    settings(**{key: "faiss"})


LBFGS = {"optimizers": {"main": {"class": "torch.optim.LBFGS"}}}


@pytest.mark.parametrize(
    ("strategy", "values", "message"),
    [
        ("fsdp", {"on_step_error": "skip"}, "on_step_error: cannot be together with strategy: fsdp"),
        ("fsdp", {"step_mode": "compile"}, "step_mode: cannot be together with strategy: fsdp"),
        ("ddp", LBFGS, "optimizers.main.class: evaluates the loss by itself"),
        ("ddp", {"data": {"batch_size": 2}}, "data.batch_size: is the whole batch, of which each rank takes "
         "its share: 3 ranks need 3 at least; received 2 (at line of data.batch_size). To mend it: set "
         "data.batch_size: 3 or more, or ask for at most 2 devices"),
    ],
)  # fmt: skip
def test_what_needs_one_process(strategy: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_ranks(settings(**values), strategy, 3, lambda key: f"line of {key}")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"on_step_error": "skip", "step_mode": "compile"},
        {"data": {"batch_size": 3}},
        {"data": {"max_tokens": 2}},
        {"data": {"batch_size": 1, "mix": {"mode": "min_size"}}},
    ],
)
def test_what_goes_with_several(values: dict[str, Any]) -> None:
    check_ranks(settings(**values), "ddp", 3, lambda key: None)


@pytest.mark.parametrize(
    "data",
    [
        {"sort_by_length": "ascending", "max_tokens": 9, "count_padding": False, "batch_size": 4},
        {"count_padding": False, "valid": {"max_tokens": 9}},
        {"weighted": True, "mix": {"mode": "max_size_cycle", "batch_sizes": {"a": 3}}},
        {"mix": {"mode": "sequential"}, "max_tokens": 9},
        {"mix": {"mode": "weighted", "weights": {"a": 0, "b": 3}}},
    ],
)
def test_what_can(data: dict[str, Any]) -> None:
    settings(data=data)
