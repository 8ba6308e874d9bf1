"""The typed settings: accepted values, and refused values with their messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.config.layers import load
from roost.config.settings import (
    Settings,
    allowed_values,
    defaults,
    describe,
    known_keys,
    parse_settings,
    parse_state_settings,
)
from roost.config.values.nested_values import merge
from tests.messages import Messages

NEEDED: dict[str, Any] = {
    "runner": "Model/Runner.py:Runner",
    "dataset": "Dataset.py:Dataset",
    "max_steps": 10,
}


def accept(**values: Any) -> Settings:
    return parse_settings({**NEEDED, **values})


def refusal(**values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_settings({**NEEDED, **values}, where=lambda key: f"config.yaml:{len(key)}" if key else None)
    assert caught.value.exit_code == 4
    return str(caught.value)


EXAMPLE = """\
runner: Model/Runner.py:Runner
dataset: Dataset/Dataset.py:Dataset
hooks: [Hooks.py:Rules]
save_root: runs
seed: 0
threads: auto
max_epochs: 5
precision: 32
gradient_accumulation_steps: 1
validate_every: 1ep
log_every: 10/ep
test_at_end: best
data: {batch_size: 64, num_workers: auto, valid: {batch_size: 256}}
optimizers:
  main:
    {class: torch.optim.AdamW, lr: 1e-3, weight_decay: 0.01, params: "*", max_grad_norm: 1.0,
     groups: [{params: ["*.bias", "*norm*"], weight_decay: 0}],
     scheduler: {class: torch.optim.lr_scheduler.CosineAnnealingLR, T_max: "${total_steps}", unit: step,
                 warmup_steps: 100}}
checkpoint: {every: 1ep, fast: 2, slow: 0, slow_every: 100, held: 1,
             best: [{monitor: valid/accuracy, mode: max, top_k: 1}]}
early_stopping: {monitor: valid/loss, mode: min, patience: 3, min_delta: 0.0}
model: {width: 3}
"""


def test_the_example_of_the_design(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(EXAMPLE)
    config = load(tmp_path / "config.yaml")
    settings = parse_settings(config.values, where=config.where)
    main = settings.optimizers["main"]
    assert settings.hooks == ["Hooks.py:Rules"]
    assert (settings.data.batch_size, settings.data.valid.batch_size) == (64, 256)
    assert (main.class_, main.params, main.max_grad_norm, main.fused) == (
        "torch.optim.AdamW",
        "*",
        1.0,
        "auto",
    )
    assert main.arguments == {"lr": 0.001, "weight_decay": 0.01}
    assert main.groups[0].params == ["*.bias", "*norm*"]
    assert main.groups[0].arguments == {"weight_decay": 0}
    assert main.scheduler is not None
    assert (main.scheduler.unit, main.scheduler.warmup_steps) == ("step", 100)
    assert main.scheduler.arguments == {"T_max": "${total_steps}"}
    assert settings.checkpoint.best[0].mode == "max"
    assert settings.early_stopping is not None and settings.early_stopping.patience == 3


def test_defaults() -> None:
    settings = accept()
    assert (settings.save_root, settings.seed, settings.threads, settings.precision) == (
        "runs",
        0,
        "auto",
        32,
    )
    assert (settings.validate_every, settings.log_every, settings.visualize_every) == ("1ep", "10/ep", None)
    assert (settings.test_at_end, settings.description, settings.hooks) == ("best", None, [])
    assert (settings.data.batch_size, settings.data.num_workers, settings.data.shuffle) == (
        None,
        "auto",
        True,
    )
    assert (settings.data.valid.batch_size, settings.data.test.num_workers) == (None, None)
    assert settings.optimizers == {} and settings.early_stopping is None
    assert (settings.checkpoint.every, settings.checkpoint.fast, settings.checkpoint.best) == ("1ep", 2, [])


def test_defaults_as_values_are_those_of_the_structs() -> None:
    values = {**NEEDED, "early_stopping": {"monitor": "x"}, "optimizers": {"main": {"class": "y"}}}
    assert parse_settings(merge(defaults(values), values)) == parse_settings(values)
    assert "early_stopping" not in defaults(NEEDED) and "optimizers" not in defaults(NEEDED)


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        accept().seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    "values",
    [
        {"max_steps": 1e6},
        {"max_steps": None, "max_time": "1h30m"},
        {"max_time": "90min"},
        {"max_time": "2d"},
        {"threads": 4},
        {"data": None},
        {"checkpoint": None},
        {"optimizers": None},
        {"hooks": None},
        {"checkpoint": {"every": ["1ep", "10min", 500]}},
        {"checkpoint": {"every": 500, "best": None}},
        {"visualize_every": "2ep"},
        {"log_every": 100},
        {"log_every": "never", "validate_every": "never", "checkpoint": {"every": "never"}},
        {"averages": None},
        {"averages": {"ema": {}, "late": {"method": "swa", "every": "1ep", "start": "5ep"}}},
        {"averages": {"ema-2": {"every": 10, "start": 100, "validate": False, "decay": 0}}},
        {"data": {"num_workers": 0, "test": {"num_workers": "auto"}}},
        {"data": {"limit_train_batches": 10, "limit_valid_batches": 0.5, "limit_test_batches": 1.0}},
        {"data": {"mix": {"mode": "weighted", "weights": {"clean": 2, "noisy": 0.5}}}},
        {"data": {"mix": {"batch_sizes": {"clean": 8}}, "loader_timeout": "5min"}},
        {"data": {"max_tokens": 4000, "count_padding": False, "sort_by_length": "descending"}},
        {"data": {"loader_timeout": 90.5, "mix": None, "steps_per_epoch": 1e3}},
        {"data": {"num_workers": "${num_workers}"} | {"num_workers": 2}, "num_workers": 2},
        {"sampler": "ddim", "timeout": 3, "batch_size": 2},
        {"optimizers": {"d": {"class": "x", "fused": True, "params": ["a.*", "b.*"]}}},
        {"early_stopping": None},
        {
            "anything": {"of": "mine"},
            "epochs": 3,
            "model.width": 3,
            "lr": 3,
            "max_size": 3,
            "data_root": "x",
            "log_file": "y",
        },
    ],
)
def test_accepted(values: dict[str, Any]) -> None:
    accept(**values)


def test_a_whole_number_written_as_a_float_is_one() -> None:
    steps = accept(max_steps=1e6).max_steps
    assert steps == 1_000_000 and type(steps) is int
    assert type(accept(early_stopping={"monitor": "x", "min_delta": 0}).early_stopping.min_delta) is float  # type: ignore[union-attr]


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"seed": "x"},
        ["seed", "9223372036854775807", "config.yaml:4", "'x'"],
    ),
    ({"seed": -1}, ["seed"]),
    ({"seed": True}, ["seed"]),
    ({"seed": 1.5}, ["seed"]),
    ({"seed": None}, ["seed"]),
    ({"threads": 0}, ["threads", "1024", "'auto'"]),
    ({"threads": "many"}, ["threads", "1024", "'auto'", "'many'"]),
    ({"max_epochs": 0}, ["max_epochs"]),
    ({"gradient_accumulation_steps": 0}, ["gradient_accumulation_steps"]),
    ({"step_mode": "fast"}, ["step_mode", "config.yaml:9", "'fast'"]),
    ({"compile_dynamic": True}, ["compile_dynamic", "step_mode", "True"]),
    (
        {"precision": 16},
        ["precision", "32", "'bf16'", "'fp16'", "config.yaml:9"],
    ),
    ({"evaluation_precision": "bf16-mixed"}, ["'bf16'"]),
    ({"precision": "32"}, ["32"]),
    (
        {"step_mode": "compiled"},
        ["step_mode", "'eager'", "'compile'", "'dry'", "'no_optim'", "config.yaml:9", "'compiled'"],
    ),
    ({"threads": "aut"}, ["'auto'"]),
    ({"test_at_end": "never"}, ["test_at_end", "'best'", "'last'", "'none'", "'never'"]),
    (
        {"hooks": "Hooks.py:Rules"},
        ["hooks", "'Hooks.py:Rules'"],
    ),
    ({"hooks": [1]}, ["hooks.0"]),
    ({"description": 3}, ["description"]),
    ({"save_root": 3}, ["save_root"]),
    ({"data": 5}, ["data", "config.yaml:4"]),
    (
        {"data": {"batch_size": 0}},
        ["data.batch_size", "config.yaml:15"],
    ),
    (
        {"data": {"num_workers": -1}},
        ["data.num_workers", "256", "'auto'", "-1"],
    ),
    ({"data": {"shuffle": "no"}}, ["data.shuffle", "'no'"]),
    ({"data": {"shuffle": 1}}, ["data.shuffle"]),
    ({"data": {"valid": {"batch_size": "8"}}}, ["data.valid.batch_size"]),
    (
        {"data": {"batchsize": 4}},
        ["'batchsize'", "config.yaml:14", "'batch_size'", "num_workers", "drop_last"],
    ),
    ({"data": {"valid": {"shuffle": True}}}, ["data.valid", "'shuffle'"]),
    (
        {"data": {"limit_train_batches": 0}},
        ["data.limit_train_batches", "config.yaml:24", "10", "0.1"],
    ),
    ({"data": {"limit_valid_batches": 1.5}}, ["data.limit_valid_batches"]),
    ({"data": {"limit_test_batches": True}}, ["data.limit_test_batches", "True"]),
    ({"data": {"mix": {"mode": "min"}}}, ["'min_size'"]),
    ({"data": {"mix": {"weights": {"a": -1}}}}, ["data.mix.weights"]),
    ({"data": {"mix": {"batch_sizes": 3}}}, ["data.mix.batch_sizes"]),
    (
        {"statistics": {"every": "10min"}},
        ["statistics.every", "'10min'"],
    ),
    ({"statistics": {"every": "x"}}, ["statistics.every", "'x'"]),
    ({"data": {"loader_timeout": "5x"}}, ["data.loader_timeout", "'5x'"]),
    ({"data": {"loader_timeout": 0}}, ["data.loader_timeout"]),
    ({"data": {"sort_by_length": True}}, ["data.sort_by_length", "ascending", "True"]),
    (
        {"data": {"timeout": 3}},
        ["'timeout'", "config.yaml:12", "'loader_timeout'"],
    ),
    ({"data": {"sampler": "x"}}, ["'weighted'"]),
    ({"data": {"batch_sampler": "x"}}, ["'max_tokens'"]),
    ({"data": {"prefetch_factor": 4}}, ["'prefetch'"]),
    ({"data": {"limit_val_batches": 4}}, ["'limit_valid_batches'"]),
    ({"optimizers": ["x"]}, ["optimizers", "['x']"]),
    ({"optimizers": {"main": "x"}}, ["optimizers.main", "'x'"]),
    ({"optimizers": {"main": {"lr": 1}}}, ["optimizers.main.class", "config.yaml:15"]),
    (
        {"optimizers": {"main": {"class": "x", "max_grad_norm": 0}}},
        ["optimizers.main.max_grad_norm"],
    ),
    (
        {"optimizers": {"main": {"class": "x", "params": 3}}},
        ["optimizers.main.params"],
    ),
    (
        {"optimizers": {"main": {"class": "x", "groups": {"params": "*"}}}},
        ["optimizers.main.groups"],
    ),
    (
        {"optimizers": {"main": {"class": "x", "groups": [{"lr": 1}]}}},
        ["optimizers.main.groups.0.params", "config.yaml:24"],
    ),
    (
        {"optimizers": {"main": {"class": "x", "scheduler": {"class": "y", "unit": "batch"}}}},
        ["optimizers.main.scheduler.unit", "'step'", "'epoch'", "'validation'", "'batch'"],
    ),
    (
        {"optimizers": {"main": {"class": "x", "scheduler": {"class": "y", "warmup_steps": -1}}}},
        ["optimizers.main.scheduler.warmup_steps"],
    ),
    ({"checkpoint": {"best": [{"monitor": "x"}]}}, ["checkpoint.best.0.mode"]),
    (
        {"checkpoint": {"best": [{"monitor": "x", "mode": "min", "topk": 1}]}},
        ["checkpoint.best.0", "'topk'", "config.yaml:22", "'top_k'"],
    ),
    ({"checkpoint": {"slow_every": 0}}, ["checkpoint.slow_every"]),
    ({"checkpoint": {"every": []}}, ["checkpoint.every"]),
    ({"checkpoint": {"every": ["1ep", "soon"]}}, ["checkpoint.every.1"]),
    ({"early_stopping": {"patience": 3}}, ["early_stopping.monitor"]),
    (
        {"early_stopping": {"monitor": "x", "patience": 0}},
        ["early_stopping.patience"],
    ),
    (
        {"early_stopping": {"monitor": "x", "min_delta": -1}},
        ["early_stopping.min_delta"],
    ),
    ({"early_stopping": {"monitor": "x", "min_delta": float("nan")}}, ["min_delta"]),
    ({"early_stopping": {"monitor": "x", "min_delta": True}}, ["min_delta"]),
    (
        {"validate_every": "0ep"},
        ["validate_every", "config.yaml:14", "'0ep'"],
    ),
    ({"validate_every": 0}, ["validate_every"]),
    ({"validate_every": True}, ["validate_every"]),
    ({"log_every": "2 epochs"}, ["log_every"]),
    ({"visualize_every": "x"}, ["visualize_every"]),
    (
        {"averages": {"ema": {"every": "often"}}},
        ["averages.ema.every", "config.yaml:18", "'often'"],
    ),
    ({"averages": {"ema": {"every": 0}}}, ["averages.ema.every"]),
    ({"averages": {"ema": {"every": "never"}}}, ["averages.ema.every", "'never'"]),
    ({"max_epochs": 10**20}, ["max_epochs", "1000000000000"]),
    ({"validate_every": "never", "early_stopping": {"monitor": "valid/loss"}}, ["early_stopping"]),
    (
        {"validate_every": "never", "checkpoint": {"best": [{"monitor": "valid/loss", "mode": "min"}]}},
        ["checkpoint.best"],
    ),
    ({"statistics": {"every": "never"}}, ["statistics.every"]),
    (
        {"averages": {"ema": {"start": "10/ep"}}},
        ["averages.ema.start", "config.yaml:18", "'10/ep'"],
    ),
    ({"averages": {"ema": {"start": "10min"}}}, ["averages.ema.start"]),
    ({"averages": {"ema": {"start": -1}}}, ["averages.ema.start"]),
    ({"averages": {"ema": {"decay": 1.0}}}, ["averages.ema.decay"]),
    ({"averages": {"ema": {"method": "mean"}}}, ["averages.ema.method"]),
    (
        {"averages": {"late": {"method": "swa", "decay": 0.9}}},
        ["averages.late.decay", "0.9"],
    ),
    ({"averages": {"a/b": {}}}, ["averages.a/b"]),
    ({"averages": {"ema": {"evry": 3}}}, ["'every'"]),
    ({"max_time": "soon"}, ["max_time", "config.yaml:8", "'soon'"]),
    ({"max_time": "0s"}, ["max_time"]),
    (
        {"max_time": 3600},
        ["max_time", "config.yaml:8", "3600"],
    ),
    ({"limits": {"wall_time": 40}}, ["40s", "10min"]),
    ({"max_steps": None}, ["max_epochs", "max_steps", "max_time"]),
    (
        {"max_steps": None, "epochs": 5},
        ["config.yaml:6", "'max_epochs'", "'epochs'"],
    ),
    ({"sed": 3}, ["'sed'", "config.yaml:3", "'seed'"]),
    ({"max_epohcs": 3}, ["'max_epochs'"]),
    ({"optmizer": {}}, ["'optimizers'"]),
    ({"Data": {}}, ["'data'"]),
    ({"includes": []}, ["'include'"]),
    (
        {"data.batch_size": 3},
        ["'data.batch_size'", "config.yaml:15", "`data: {batch_size: ...}`"],
    ),
]


@pytest.mark.parametrize(("values", "facts"), WRONG)
def test_refused(values: dict[str, Any], facts: list[str], messages: Messages) -> None:
    message = refusal(**values)
    messages.check(message)
    assert all(fact in message for fact in facts)


@pytest.mark.parametrize("key", ["runner", "dataset"])
def test_needed_settings(key: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_settings({name: value for name, value in NEEDED.items() if name != key})
    messages.check(refused.value)
    assert refused.value.setting == key and refused.value.fix is not None and ".py:" in refused.value.fix


def test_file_and_line_of_a_real_config(tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "config.yaml").write_text("include: data.yaml\nrunner: a\ndataset: b\nmax_steps: 3\n")
    (tmp_path / "data.yaml").write_text("data:\n  batch_size: 3\n  shufle: true\n")
    config = load(tmp_path / "config.yaml")
    with pytest.raises(ConfigError) as refused:
        parse_settings(config.values, where=config.where)
    messages.check(refused.value)
    assert all(fact in str(refused.value) for fact in ("'shufle'", "data.yaml:3", "'shuffle'"))


def test_every_setting_has_a_line_of_help() -> None:
    values: dict[str, Any] = {"optimizers": {"main": {"groups": [], "scheduler": {}}}}
    for key in known_keys(values):
        text = describe(key)
        assert text and "\n" not in text and len(text) < 80, key
    for key in ("checkpoint.best.0.monitor", "optimizers.main.groups.0.params"):
        assert describe(key)


def test_what_each_setting_takes_is_told_in_the_words_of_the_messages(messages: Messages) -> None:
    values: dict[str, Any] = {"optimizers": {"main": {"groups": [], "scheduler": {}}}}
    assert all(allowed_values(key) for key in known_keys(values))
    for key in (
        "step_mode", "max_steps", "optimizers.main.scheduler.unit", "optimizers", "optimizers.main",
        "early_stopping", "checkpoint.best", "checkpoint.best.0.mode",
    ):  # fmt: skip
        messages.check(allowed_values(key))
    assert all(
        repr(mode) in str(allowed_values("step_mode")) for mode in ("eager", "compile", "dry", "no_optim")
    )
    assert all(mode in str(allowed_values("checkpoint.best.0.mode")) for mode in ("'min'", "'max'"))
    assert allowed_values("optimizers.main.lr") is None and allowed_values("model.width") is None


def test_help_of_keys_that_are_not_roosts(messages: Messages) -> None:
    assert describe("optimizers.main.lr") == describe("optimizers.main.betas.0") is not None
    messages.check(describe("optimizers.main.lr"))
    assert describe("model.width") is None
    assert describe("data.nothing") is None
    assert describe("seed.x") is None


def test_known_keys_follow_the_names_in_the_values() -> None:
    known = set(known_keys({"optimizers": {"d": {"class": "x"}}}))
    assert {"optimizers.d.max_grad_norm", "optimizers.d.scheduler.unit", "data.valid.batch_size"} <= known
    assert "early_stopping.patience" in known
    assert not any(key.startswith("optimizers.main") for key in known)
    assert set(known_keys({"optimizers": 3, "data": None})) == set(known_keys({}))


@pytest.mark.parametrize(
    ("values", "setting", "facts"),
    [
        ({"chekpoint": {"fast": 3}}, None, ["'chekpoint'", "'checkpoint'"]),
        ({"checkpoint.fast": 3}, None, ["'checkpoint.fast'", "`checkpoint: {fast: ...}`"]),
        ({"checkpoint": {"every": "bogus"}}, "checkpoint.every", ["'bogus'"]),
        ({"checkpoint": {"every": ["1ep", "bogus"]}}, "checkpoint.every.1", ["'bogus'"]),
        ({"checkpoint": {"fast": -1}}, "checkpoint.fast", []),
    ],
)
def test_a_config_that_trains_nothing_is_checked_too(
    values: dict[str, Any], setting: str | None, facts: list[str], messages: Messages
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_state_settings(values)
    messages.check(refused.value)
    assert refused.value.setting == setting and all(fact in str(refused.value) for fact in facts)


def test_of_a_config_that_trains_nothing_the_rest_is_the_users() -> None:
    found = parse_state_settings({"seeds": 3, "max_epoch": "x", "lr": 0.1, "checkpoint": {"fast": 9}})
    assert found.checkpoint.fast == 9 and found.save_root == accept().save_root


@pytest.mark.parametrize("name", ["max_gradnorm", "grad_normtype", "schedular"])
def test_a_misspelled_setting_of_an_optimizer_is_no_argument(name: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        accept(optimizers={"main": {"class": "torch.optim.SGD", "lr": 0.1, name: 1.0}})
    messages.check(refused.value)
    assert "optimizers.main" in str(refused.value) and repr(name) in str(refused.value)
