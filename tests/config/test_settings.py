"""The typed settings: what is accepted, what is refused and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.config.layers import load, merge
from roost.config.settings import Settings, allowed, defaults, describe, known_keys, typed, typed_state

NEEDED: dict[str, Any] = {
    "runner": "Model/Runner.py:Runner",
    "dataset": "Dataset.py:Dataset",
    "max_steps": 10,
}


def accept(**values: Any) -> Settings:
    return typed({**NEEDED, **values})


def refusal(**values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        typed({**NEEDED, **values}, where=lambda key: f"config.yaml:{len(key)}" if key else None)
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
    settings = typed(config.values, where=config.where)
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
    assert typed(merge(defaults(values), values)) == typed(values)
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


WRONG = [
    (
        {"seed": "x"},
        "seed: expected a whole number >= 0 and <= 9223372036854775807; received 'x' (at config.yaml:4)",
    ),
    ({"seed": -1}, "seed: expected a whole number >= 0"),
    ({"seed": True}, "seed: expected a whole number"),
    ({"seed": 1.5}, "seed: expected a whole number"),
    ({"seed": None}, "seed: expected a whole number"),
    ({"threads": 0}, "threads: expected a whole number >= 1 and <= 1024 or 'auto'; received 0"),
    ({"threads": "many"}, "threads: expected a whole number >= 1 and <= 1024 or 'auto'; received 'many'"),
    ({"max_epochs": 0}, "max_epochs: expected a whole number >= 1 or null; received 0"),
    ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps: expected a whole number >= 1"),
    (
        {"step_mode": "cudagraph"},
        "step_mode: is not there yet: nobody has run it on a GPU so far, and what was never run is not "
        "offered; received 'cudagraph' (at config.yaml:9). To mend it: use eager or compile",
    ),
    ({"compile_dynamic": True}, "compile_dynamic: is for step_mode: compile alone; received True"),
    (
        {"precision": 16},
        "precision: expected 32 or 'bf16' or 'fp16'; received 16 (at config.yaml:9). To mend it: did you "
        "mean 'fp16'?",
    ),
    ({"evaluation_precision": "bf16-mixed"}, "To mend it: did you mean 'bf16'?"),
    ({"precision": "32"}, "To mend it: did you mean 32?"),
    (
        {"step_mode": "compiled"},
        "step_mode: expected 'eager' or 'compile' or 'dry' or 'no_optim'; received 'compiled' (at "
        "config.yaml:9). To mend it: did you mean 'compile'?",
    ),
    ({"threads": "aut"}, "To mend it: did you mean 'auto'?"),
    ({"test_at_end": "never"}, "test_at_end: expected 'best' or 'last' or 'none'; received 'never'"),
    (
        {"hooks": "Hooks.py:Rules"},
        "hooks: expected a list, each a text or a section; received 'Hooks.py:Rules'",
    ),
    ({"hooks": [1]}, "hooks.0: expected a text or a section; received 1"),
    ({"description": 3}, "description: expected a text or null; received 3"),
    ({"save_root": 3}, "save_root: expected a text; received 3"),
    ({"data": 5}, "data: is a section; received 5 (at config.yaml:4). To mend it: write its keys"),
    (
        {"data": {"batch_size": 0}},
        "data.batch_size: expected a whole number >= 1 or null; received 0 (at config.yaml:15)",
    ),
    (
        {"data": {"num_workers": -1}},
        "data.num_workers: expected a whole number >= 0 and <= 256 or 'auto'; received -1",
    ),
    ({"data": {"shuffle": "no"}}, "data.shuffle: expected true or false; received 'no'"),
    ({"data": {"shuffle": 1}}, "data.shuffle: expected true or false; received 1"),
    ({"data": {"valid": {"batch_size": "8"}}}, "data.valid.batch_size: expected a whole number >= 1 or null"),
    (
        {"data": {"batchsize": 4}},
        "data has no setting 'batchsize' (at config.yaml:14). "
        "To mend it: did you mean "
        "'batch_size'? it knows batch_size, num_workers, shuffle, drop_last, weighted,",
    ),
    ({"data": {"valid": {"shuffle": True}}}, "data.valid has no setting 'shuffle'"),
    (
        {"data": {"limit_train_batches": 0}},
        "data.limit_train_batches: expected a whole number >= 1 or a number > 0 and <= 1 or null; received 0 "
        "(at config.yaml:24). To mend it: give a number of batches (10), a share of them (0.1), or null for",
    ),
    ({"data": {"limit_valid_batches": 1.5}}, "data.limit_valid_batches: expected a whole number >= 1"),
    ({"data": {"limit_test_batches": True}}, "received True"),
    ({"data": {"mix": {"mode": "min"}}}, "To mend it: did you mean 'min_size'?"),
    ({"data": {"mix": {"weights": {"a": -1}}}}, "data.mix.weights: expected names, each with a number >= 0"),
    ({"data": {"mix": {"batch_sizes": 3}}}, "data.mix.batch_sizes: expected names, each with a whole number"),
    (
        {"statistics": {"every": "10min"}},
        "statistics.every: is a time, and it must be known before a step whether it is due; received '10min'",
    ),
    ({"statistics": {"every": "x"}}, "statistics.every: is no interval; received 'x'"),
    ({"data": {"loader_timeout": "5x"}}, "data.loader_timeout: is no duration; received '5x'"),
    ({"data": {"loader_timeout": 0}}, "data.loader_timeout: expected a number > 0 or a text; received 0"),
    ({"data": {"sort_by_length": True}}, "To mend it: ascending draws the shortest first"),
    (
        {"data": {"timeout": 3}},
        "data has no setting 'timeout' (at config.yaml:12). To mend it: did you mean 'loader_timeout'?",
    ),
    ({"data": {"sampler": "x"}}, "did you mean 'weighted'?"),
    ({"data": {"batch_sampler": "x"}}, "did you mean 'max_tokens'?"),
    ({"data": {"prefetch_factor": 4}}, "did you mean 'prefetch'?"),
    ({"data": {"limit_val_batches": 4}}, "did you mean 'limit_valid_batches'?"),
    (
        {"num_workers": 4},
        "there is no setting 'num_workers' at the top (at config.yaml:11). To mend it: "
        "write it as `data: {num_workers: ...}`; a key of your own needs another name",
    ),
    ({"steps_per_epoch": 4, "data": None}, "write it as `data: {steps_per_epoch: ...}`"),
    ({"prefetch_factor": 4, "data": {"shuffle": False}}, "write it as `data: {prefetch: ...}`"),
    ({"optimizers": ["x"]}, "optimizers: expected names, each with a section; received ['x']"),
    ({"optimizers": {"main": "x"}}, "optimizers.main: is a section; received 'x'"),
    ({"optimizers": {"main": {"lr": 1}}}, "optimizers.main.class: is missing (at config.yaml:15)"),
    (
        {"optimizers": {"main": {"class": "x", "max_grad_norm": 0}}},
        "optimizers.main.max_grad_norm: expected a number > 0 or null; received 0",
    ),
    (
        {"optimizers": {"main": {"class": "x", "params": 3}}},
        "optimizers.main.params: expected a text or a list, each a text; received 3",
    ),
    (
        {"optimizers": {"main": {"class": "x", "groups": {"params": "*"}}}},
        "optimizers.main.groups: expected a list of sections",
    ),
    (
        {"optimizers": {"main": {"class": "x", "groups": [{"lr": 1}]}}},
        "optimizers.main.groups.0.params: is missing (at config.yaml:24)",
    ),
    (
        {"optimizers": {"main": {"class": "x", "scheduler": {"class": "y", "unit": "batch"}}}},
        "optimizers.main.scheduler.unit: expected 'step' or 'epoch' or 'validation'; received 'batch'",
    ),
    (
        {"optimizers": {"main": {"class": "x", "scheduler": {"class": "y", "warmup_steps": -1}}}},
        "optimizers.main.scheduler.warmup_steps: expected a whole number >= 0",
    ),
    ({"checkpoint": {"best": [{"monitor": "x"}]}}, "checkpoint.best.0.mode: is missing"),
    (
        {"checkpoint": {"best": [{"monitor": "x", "mode": "min", "topk": 1}]}},
        "checkpoint.best.0 has no setting 'topk' (at config.yaml:22). To mend it: did you mean 'top_k'?",
    ),
    ({"checkpoint": {"slow_every": 0}}, "checkpoint.slow_every: expected a whole number >= 1"),
    ({"checkpoint": {"every": []}}, "checkpoint.every: expected a text or a whole number or a list"),
    ({"checkpoint": {"every": ["1ep", "soon"]}}, "checkpoint.every.1: is no "),
    ({"early_stopping": {"patience": 3}}, "early_stopping.monitor: is missing"),
    (
        {"early_stopping": {"monitor": "x", "patience": 0}},
        "early_stopping.patience: expected a whole number >= 1",
    ),
    (
        {"early_stopping": {"monitor": "x", "min_delta": -1}},
        "early_stopping.min_delta: expected a number >= 0",
    ),
    ({"early_stopping": {"monitor": "x", "min_delta": float("nan")}}, "min_delta: expected a number >= 0"),
    ({"early_stopping": {"monitor": "x", "min_delta": True}}, "min_delta: expected a number >= 0"),
    (
        {"validate_every": "0ep"},
        "validate_every: is no interval; received '0ep' (at config.yaml:14). To mend it: ",
    ),
    ({"validate_every": 0}, "validate_every: is no interval"),
    ({"validate_every": True}, "validate_every: expected a text or a whole number"),
    ({"log_every": "2 epochs"}, "log_every: is no "),
    ({"visualize_every": "x"}, "visualize_every: is no "),
    (
        {"averages": {"ema": {"every": "often"}}},
        "averages.ema.every: is no interval; received 'often' (at config.yaml:18)",
    ),
    ({"averages": {"ema": {"every": 0}}}, "averages.ema.every: is no interval; received 0"),
    (
        {"averages": {"ema": {"start": "10/ep"}}},
        "averages.ema.start: is no beginning; received '10/ep' (at config.yaml:18). To mend it: write 0, a",
    ),
    ({"averages": {"ema": {"start": "10min"}}}, "averages.ema.start: is no beginning"),
    ({"averages": {"ema": {"start": -1}}}, "averages.ema.start: is no beginning"),
    ({"averages": {"ema": {"decay": 1.0}}}, "averages.ema.decay: "),
    ({"averages": {"ema": {"method": "mean"}}}, "averages.ema.method: "),
    (
        {"averages": {"late": {"method": "swa", "decay": 0.9}}},
        "averages.late.decay: is for method: ema alone; with swa all weights count the same; received 0.9",
    ),
    ({"averages": {"a/b": {}}}, "averages.a/b: is no name of an average"),
    ({"averages": {"ema": {"evry": 3}}}, "did you mean 'every'?"),
    ({"max_time": "soon"}, "max_time: is no duration; received 'soon' (at config.yaml:8)"),
    ({"max_time": "0s"}, "max_time: is no duration"),
    (
        {"max_time": 3600},
        "max_time: expected a text or null; received 3600 (at config.yaml:8). To mend it: give",
    ),
    ({"limits": {"wall_time": 40}}, "To mend it: give it a unit: 40s, 10min"),
    ({"max_steps": None}, "nothing ends the run. To mend it: set max_epochs, max_steps or max_time"),
    (
        {"max_steps": None, "epochs": 5},
        "nothing ends the run (at config.yaml:6). To mend it: did you mean 'max_epochs'? 'epochs' is a key",
    ),
    ({"sed": 3}, "there is no setting 'sed' (at config.yaml:3). To mend it: did you mean 'seed'?"),
    ({"max_epohcs": 3}, "did you mean 'max_epochs'?"),
    ({"optmizer": {}}, "did you mean 'optimizers'?"),
    ({"Data": {}}, "did you mean 'data'?"),
    ({"includes": []}, "did you mean 'include'?"),
    (
        {"data.batch_size": 3},
        "the key 'data.batch_size' has a dot in it (at config.yaml:15). To mend it: "
        "write it nested, `data: {batch_size: ...}`",
    ),
]


@pytest.mark.parametrize(("values", "message"), WRONG)
def test_refused(values: dict[str, Any], message: str) -> None:
    assert message in refusal(**values)


@pytest.mark.parametrize("key", ["runner", "dataset"])
def test_needed_settings(key: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"{key}: is missing. To mend it: give it: the .* class, as .*\.py:"
    ):
        typed({name: value for name, value in NEEDED.items() if name != key})


def test_file_and_line_of_a_real_config(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("include: data.yaml\nrunner: a\ndataset: b\nmax_steps: 3\n")
    (tmp_path / "data.yaml").write_text("data:\n  batch_size: 3\n  shufle: true\n")
    config = load(tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match=r"data has no setting 'shufle' \(at data.yaml:3\).*'shuffle'"):
        typed(config.values, where=config.where)


def test_every_setting_has_a_line_of_help() -> None:
    values: dict[str, Any] = {"optimizers": {"main": {"groups": [], "scheduler": {}}}}
    for key in known_keys(values):
        text = describe(key)
        assert text and "\n" not in text and len(text) < 80, key
    for key in ("checkpoint.best.0.monitor", "optimizers.main.groups.0.params"):
        assert describe(key)


def test_what_each_setting_takes_is_told_in_the_words_of_the_messages() -> None:
    values: dict[str, Any] = {"optimizers": {"main": {"groups": [], "scheduler": {}}}}
    assert all(allowed(key) for key in known_keys(values))
    assert allowed("step_mode") == "'eager' or 'compile' or 'dry' or 'no_optim'"
    assert allowed("max_steps") == "a whole number >= 1 or null"
    assert allowed("optimizers.main.scheduler.unit") == "'step' or 'epoch' or 'validation'"
    assert allowed("optimizers") == "names, each with a section"
    assert (allowed("optimizers.main"), allowed("early_stopping")) == ("a section", "a section or null")
    assert allowed("checkpoint.best") == "a list of sections"
    assert allowed("checkpoint.best.0.mode") == "'min' or 'max'"
    assert allowed("optimizers.main.lr") is None and allowed("model.width") is None


def test_help_of_keys_that_are_not_roosts() -> None:
    assert describe("optimizers.main.lr") == "an argument of the class"
    assert describe("optimizers.main.betas.0") == "an argument of the class"
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
    ("values", "message"),
    [
        ({"chekpoint": {"fast": 3}}, r"no setting 'chekpoint'.*did you mean 'checkpoint'"),
        ({"checkpoint.fast": 3}, r"has a dot in it.*nested"),
        ({"checkpoint": {"every": "bogus"}}, r"checkpoint\.every: .*'bogus'"),
        ({"checkpoint": {"every": ["1ep", "bogus"]}}, r"checkpoint\.every\.1: .*'bogus'"),
        ({"checkpoint": {"fast": -1}}, r"checkpoint\.fast"),
    ],
)
def test_a_config_that_trains_nothing_is_checked_too(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        typed_state(values)


def test_of_a_config_that_trains_nothing_the_rest_is_the_users() -> None:
    found = typed_state({"seeds": 3, "max_epoch": "x", "lr": 0.1, "checkpoint": {"fast": 9}})
    assert found.checkpoint.fast == 9 and found.save_root == Settings.__struct_defaults__[0]


@pytest.mark.parametrize("name", ["max_gradnorm", "grad_normtype", "schedular"])
def test_a_misspelled_setting_of_an_optimizer_is_no_argument(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"optimizers.main has no setting '{name}'.*did you mean"):
        accept(optimizers={"main": {"class": "torch.optim.SGD", "lr": 0.1, name: 1.0}})
