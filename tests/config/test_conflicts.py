from __future__ import annotations

from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.config.conflicts import check_ranks
from roost.config.settings import Settings, parse_settings
from tests.messages import Messages


def settings(**values: Any) -> Settings:
    given = {"runner": "a.py:A", "dataset": "b.py:B", "max_steps": 1, **values}
    return parse_settings(given, where=lambda key: f"line of {key}")


@pytest.mark.parametrize(
    ("data", "setting", "facts"),
    [
        (
            {"weighted": True, "sort_by_length": "ascending"},
            "data.sort_by_length",
            ["line of data.weighted", "line of data.sort_by_length", "'ascending'"],
        ),
        ({"weighted": True, "max_tokens": 9}, "data.max_tokens", ["data.weighted"]),
        (
            {"count_padding": False},
            "data.count_padding",
            ["data.max_tokens", "line of data.count_padding", "False"],
        ),
        (
            {"mix": {"weights": {"a": 1}}},
            "data.mix.weights",
            ["data.mix.mode", "line of data.mix.weights.a", "min_size", "{'a': 1.0}"],
        ),
        (
            {"mix": {"mode": "weighted"}},
            "data.mix.mode",
            ["data.mix.weights", "'weighted'"],
        ),
        (
            {"mix": {"mode": "weighted", "weights": {"a": 1}, "batch_sizes": {"a": 1}}},
            "data.mix.batch_sizes",
            ["data.mix.mode", "line of data.mix.mo"],
        ),
        (
            {"mix": {"mode": "weighted", "weights": {"a": 1}}, "max_tokens": 9},
            "data.max_tokens",
            ["data.mix.mode"],
        ),
        (
            {"mix": {"mode": "weighted", "weights": {"a": 1}}, "weighted": True},
            "data.weighted",
            ["data.mix.mode"],
        ),
    ],
)
def test_what_cannot_go_together(
    data: dict[str, Any], setting: str, facts: list[str], messages: Messages
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(data=data)
    messages.check(caught.value)
    assert caught.value.setting == setting and all(fact in str(caught.value) for fact in facts)


def test_statistics_of_nothing(messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(statistics={"gradients": False, "weights": False})
    messages.check(refused.value)
    assert refused.value.setting == "statistics" and "line of statistics" in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        settings(statistics={"params": []})
    messages.check(refused.value)
    assert refused.value.setting == "statistics.params" and "[]" in str(refused.value)
    settings(statistics={"gradients": False, "weights": False, "updates": True})


def test_of_the_step(messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(compile_dynamic=True)
    messages.check(refused.value)
    assert refused.value.setting == "compile_dynamic" and "step_mode" in str(refused.value)
    settings(compile_dynamic=True, step_mode="compile")


def test_several_learning_rates_are_a_sweep(messages: Messages) -> None:
    one = {"class": "torch.optim.SGD", "lr": [1e-3, 1e-4]}
    with pytest.raises(ConfigError) as refused:
        settings(optimizers={"g": one})
    messages.check(refused.value)
    assert refused.value.setting == "optimizers.g.lr" and "g.lr=0.001,0" in str(refused.value)
    settings(optimizers={"g": {**one, "lr": 1e-3, "betas": [0.9, 0.99]}})


@pytest.mark.parametrize(("argument", "value"), [("lr", "abc"), ("lr", ""), ("weight_decay", "1,5")])
def test_a_text_is_no_number_of_an_optimizer_of_torch(argument: str, value: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(optimizers={"g": {"class": "torch.optim.SGD", argument: value}})
    messages.check(refused.value)
    assert refused.value.setting == f"optimizers.g.{argument}" and repr(value) in str(refused.value)
    assert refused.value.fix is not None and f"{argument}=0.001" in refused.value.fix
    for fine in ("Model/Own.py:SGD", "torch.optim.SGD"):  # a class of the project may take any text
        given = value if fine.startswith("Model") else "${total_steps}"
        settings(optimizers={"g": {"class": fine, argument: given}})
    with pytest.raises(ConfigError) as refused:
        settings(optimizers={"g": {"class": "torch.optim.SGD", argument: "1e-3"}})
    messages.check(refused.value)
    assert "1e-3" in str(refused.value)


@pytest.mark.parametrize("devices", [[], [1, 1]])
def test_gpus_are_named_once(devices: list[int], messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(devices=devices)
    messages.check(refused.value)
    assert refused.value.setting == "devices" and "line of dev" in str(refused.value)
    settings(devices=[1, 0])


@pytest.mark.parametrize(("key", "value"), [("backend", "nccl"), ("dist_backend", "gloo")])
def test_nobody_chooses_a_backend(key: str, value: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(**{key: value})
    messages.check(refused.value)
    assert refused.value.setting == key and repr(value) in str(refused.value)
    assert "gloo" in str(refused.value)
    settings(**{key: "faiss"})


LBFGS = {"optimizers": {"main": {"class": "torch.optim.LBFGS"}}}


@pytest.mark.parametrize(
    ("strategy", "values", "setting", "facts"),
    [
        ("fsdp", {"on_step_error": "skip"}, "on_step_error", []),
        ("fsdp", {"step_mode": "compile"}, "step_mode", []),
        ("ddp", LBFGS, "optimizers.main.class", []),
        ("ddp", {"data": {"batch_size": 2}}, "data.batch_size", ["line of data.batch_size"]),
    ],
)  # fmt: skip
def test_what_needs_one_process(
    strategy: str, values: dict[str, Any], setting: str, facts: list[str], messages: Messages
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_ranks(settings(**values), strategy, 3, lambda key: f"line of {key}")
    messages.check(caught.value)
    assert caught.value.setting == setting and all(fact in str(caught.value) for fact in facts)


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
