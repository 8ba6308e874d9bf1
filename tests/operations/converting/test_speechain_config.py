"""What each option of SpeeChain becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.config_files import read_config_file
from roost.base.errors import ConfigError, NotFound, UsageError
from roost.config.values.nested_values import dotted_keys, value_at
from roost.config.variants import read_variants
from roost.operations.converting.conversion import Conversion
from roost.operations.converting.convert import ConvertRequest, convert
from roost.operations.converting.speechain_config import convert_speechain
from tests.messages import Messages
from tests.operations.converting.configs import MINIMAL, RECIPE, check_keys, recipe


def converted(tmp_path: Path, *words: str, text: str = MINIMAL, **lines: object) -> Conversion:
    """Converts a config to which lines are added."""
    more = "".join(f"{name}: {value}\n" for name, value in lines.items())
    return convert_speechain(recipe(tmp_path, more + text), words)


def at(conversion: Conversion, key: str) -> Any:
    return value_at(conversion.settings, tuple(key.split(".")))


def lost(conversion: Conversion) -> set[str]:
    return {name for name, _ in conversion.without_counterpart()}


def test_the_defaults_are_those_of_speechain(tmp_path: Path) -> None:
    found = converted(tmp_path)
    assert {key: at(found, key) for key in DEFAULTS} == DEFAULTS
    assert lost(found) == set()


DEFAULTS = {
    "seed": 0,
    "seed_mode": "per_rank",
    "determinism": "seeded",
    "precision": "fp16",
    "evaluation_precision": 32,
    "devices": 1,
    "strategy": None,
    "sync_batch_norm": True,
    "on_step_error": "raise",
    "max_epochs": 1000,
    "gradient_accumulation_steps": 1,
    "validate_every": "1ep",
    "log_every": "10/ep",
    "step_mode": "eager",
    "test_at_end": "none",
    "save_root": "exp",
    "checkpoint.every": "1ep",
    "checkpoint.fast": 1,
    "checkpoint.best": [],
    "optimizers.main.class": "torch.optim.Adam",
    "optimizers.main.max_grad_norm": 5.0,
    "optimizers.main.grad_norm_type": 2.0,
    "optimizers.main.lr_scale": 1.0,
    "optimizers.main.every_n_steps": 1,
    "optimizers.main.scheduler.lr_lambda": {"class": "schedules.py:Noam", "warmup_steps": 4000},
    "data.num_workers": 1,
    "data.valid.num_workers": 1,
    "data.batch_size": 1,
    "data.shuffle": True,
}


@pytest.mark.parametrize(
    ("lines", "settings"),
    [
        ({"report_per_steps": 100}, {"log_every": 100}),
        ({"report_per_steps": -5}, {"log_every": "5/ep"}),
        ({"report_per_steps": 0}, {"log_every": "10/ep"}),
        ({"report_per_steps": "3.0"}, {"log_every": 3}),
        ({"use_amp": False}, {"precision": 32}),
        ({"use_amp": "flase"}, {"precision": 32}),
        ({"num_epochs": "1e2"}, {"max_epochs": 100}),
        ({"grad_clip": 0}, {"optimizers.main.max_grad_norm": None}),
        ({"ft_factor": 0.1}, {"optimizers.main.lr_scale": 0.1}),
        ({"ngpu": 2}, {"devices": 2, "strategy": "ddp", "data.batch_size": 2, "data.valid.batch_size": 2}),
        ({"ngpu": 2, "gpus": "1,3"}, {"devices": [1, 3], "strategy": "ddp"}),
        ({"gpus": 2}, {"devices": [2], "strategy": None}),
        ({"same_proc_seed": True}, {"seed_mode": "same"}),
        ({"cudnn_benchmark": True}, {"determinism": "off"}),
        ({"ignore_train_exception": True}, {"on_step_error": "skip"}),
        ({"enable_syncbatchnorm": False}, {"sync_batch_norm": False}),
        ({"train_result_path": "results/a"}, {"save_root": "results/a"}),
        ({"dry_run": True, "no_optim": True}, {"step_mode": "dry"}),
        ({"no_optim": True}, {"step_mode": "no_optim"}),
        ({"valid_per_epochs": 3}, {"validate_every": "3ep"}),
        ({"last_model_number": 4}, {"checkpoint.fast": 4}),
        ({"visual_snapshot_number": 3}, {"visualize_samples": 3, "visualize_every": "5ep"}),
    ],
    ids=lambda given: ",".join(given),
)
def test_an_option(tmp_path: Path, lines: dict[str, object], settings: dict[str, Any]) -> None:
    found = converted(tmp_path, **lines)
    assert {key: at(found, key) for key in settings} == settings


ROWS = [["valid", "accuracy", "max", 10], ["train", "loss", "min", 2]]


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ("!tuple (valid, accuracy, max, 10)", ROWS[:1]),
        ("[valid, accuracy, max, 10]", ROWS[:1]),
        ("[[valid, accuracy, max, 10], [train, loss, min, 2]]", ROWS),
        ("'[[valid,accuracy,max,10],[train,loss,min,2]]'", ROWS),
        ("[!tuple '(valid, accuracy, max, 10)', !tuple '(train, loss, min, 2)']", ROWS),
    ],
)
def test_the_best_models(tmp_path: Path, given: str, rows: list[list[Any]]) -> None:
    found = converted(tmp_path, best_model_selection=given, early_stopping_patience=4)
    assert at(found, "checkpoint.best") == [
        {"monitor": f"{group}/{metric}", "mode": mode, "top_k": number}
        for group, metric, mode, number in rows
    ]
    assert at(found, "early_stopping") == {
        "monitor": "valid/accuracy",
        "mode": "max",
        "patience": 5,  # there it stopped when the count was above 4
        "min_delta": 0.001,
        "min_delta_mode": "relative",
    }


@pytest.mark.parametrize(
    ("threshold", "every", "expected"),
    [(0.01, 1, (5, 0.01, "relative")), (-0.5, 1, (5, 0.5, "absolute")), (0, 2, (3, 0, "relative"))],
)
def test_early_stopping(tmp_path: Path, threshold: float, every: int, expected: tuple[object, ...]) -> None:
    found = converted(
        tmp_path,
        best_model_selection="[valid, loss, min, 1]",
        early_stopping_patience=4,
        early_stopping_threshold=threshold,
        valid_per_epochs=every,
    )
    stop = at(found, "early_stopping")
    assert (stop["patience"], stop["min_delta"], stop["min_delta_mode"]) == expected


def test_words_are_those_of_the_command_line(tmp_path: Path) -> None:
    found = converted(
        tmp_path,
        "num_epochs=7",
        "--best_model_selection=[[valid,loss,min,2]]",
        "monitor_snapshot_conf=a:{b:1}",
        "early_stopping_threshold=-1e-3",
        num_epochs=5,
    )
    assert at(found, "max_epochs") == 7
    assert at(found, "checkpoint.best") == [{"monitor": "valid/loss", "mode": "min", "top_k": 2}]
    assert found.value("monitor_snapshot_conf") == {"a": {"b": 1}}
    assert found.value("early_stopping_threshold") == -1e-3
    assert lost(found) == {"monitor_snapshot_conf"}


def test_a_recipe(tmp_path: Path) -> None:
    found = converted(tmp_path, text=RECIPE)
    assert at(found, "data") == {
        "num_workers": 1,
        "max_tokens": 24,
        "count_padding": False,
        "shuffle": True,
        "sort_by_length": "descending",
        "valid": {"num_workers": 1, "batch_size": 1},
        "test": {"num_workers": 1, "batch_size": 1},
    }
    assert at(found, "optimizers.main.eps") == 1e-9
    assert found.own["variables"].keys() >= {"d_model", "data_root", "dataset_path"}
    assert found.own["variables"].keys().isdisjoint({"batch_len", "warmup_steps", "num_workers"})
    assert found.own["model"]["module_conf"]["encoder"]["conf"] == {
        "in_dim": "${speechain.variables.feat_dim}",
        "d_model": "${speechain.variables.d_model}",
    }
    assert found.own["worst_cases"] == [["wer", "max", 30]]
    assert lost(found) == {"num_workers"}  # of an older version, without effect there
    assert found.evaluation == (
        "roost evaluate PACKAGE --checkpoints 'average(best:10)' --variants variants.yaml"
    )


def test_parts_in_files_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "recipes" / "asr"
    for name in ("data_cfg", "train_cfg", "infer_cfg"):
        (folder / name).mkdir(parents=True)
    (folder / "data_cfg" / "d.yaml").write_text(
        """
root: /d
train:
  type: abs.Iterator
  conf: {dataset_type: feats.FeatDataset, dataset_conf: {main_data: {feat: !ref <root>/x}}, batch_size: 4}
valid: {type: abs.Iterator, conf: {dataset_type: feats.FeatDataset, dataset_conf: {}, batch_size: 2}}
"""
    )
    (folder / "train_cfg" / "t.yaml").write_text(
        """
model: {model_type: toy.ToyModel, model_conf: {frozen_modules: encoder}, module_conf: {price: "${x}"}}
optim_sches: {type: exp.ExponentDecayLr, conf: {optim_type: SGD, optim_conf: {lr: 0.1}}}
"""
    )
    (folder / "infer_cfg" / "beam.yaml").write_text("beam_size: 4\n")
    text = (
        "data_cfg: recipes/asr/data_cfg/d.yaml\ntrain_cfg: recipes/asr/train_cfg/t.yaml\n"
        "infer_cfg: [recipes/asr/infer_cfg/beam.yaml, {beam_size: 1}]\n"
    )
    found = converted(tmp_path, text=text)
    assert found.own["data"]["train"]["arguments"] == {"main_data": {"feat": "/d/x"}}
    assert found.own["model"]["module_conf"] == {"price": "$${x}"}
    assert at(found, "freeze") == ["model.encoder.*"]
    assert at(found, "optimizers.main.scheduler") == {
        "class": "torch.optim.lr_scheduler.ExponentialLR",
        "unit": "epoch",
        "gamma": 0.999,
    }
    assert (at(found, "data.batch_size"), at(found, "data.valid.batch_size")) == (4, 2)
    assert "variants/beam.yaml" in found.files["variants.yaml"]
    assert "beam_size: 4" in found.files["variants/beam.yaml"]
    for name, content in found.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert [one.name for one in read_variants(tmp_path / "variants.yaml")] == ["beam", "beam_size=1"]


def test_one_inference_configuration_keeps_its_name(tmp_path: Path) -> None:
    found = converted(tmp_path, text=MINIMAL + "infer_cfg: {beam_size: 4, ctc: 0.5}\n")
    (tmp_path / "variants.yaml").write_text(found.files["variants.yaml"])
    assert [one.name for one in read_variants(tmp_path / "variants.yaml")] == ["beam_size=4_ctc=0.5"]


def test_several_optimizers_and_sets(tmp_path: Path) -> None:
    text = """
best_model_selection: [valid, loss, min, 1]
data_cfg:
  train:
    paired: {type: abs.Iterator, conf: {dataset_type: a.A, dataset_conf: {}, batch_size: 4}}
    text: {type: abs.Iterator, conf: {dataset_type: b.B, dataset_conf: {}, batch_size: 2}}
  valid:
    clean: {type: abs.Iterator, conf: {dataset_type: a.A, dataset_conf: {}, batch_size: 4}}
    other: {type: abs.Iterator, conf: {dataset_type: a.A, dataset_conf: {}, batch_size: 2}}
train_cfg:
  model:
    model_type: c.C
    module_conf: {}
    model_conf: {pretrained_model: {path: a.pth, mapping: {encoder: asr.encoder}}}
  optim_sches:
    critic:
      type: noam.Noamlr
      conf:
        {optim_conf: {}, optim_loss: critic_loss, updated_modules: critic, step_per_update: 2, d_model: 64}
    rest-1:
      type: mine.Cosine
      conf: {optim_type: AdamW, optim_conf: {lr: 1e-3}, updated_modules: [encoder, decoder], period: 10}
"""
    found = converted(tmp_path, text=text)
    assert at(found, "data.mix") == {"mode": "min_size", "batch_sizes": {"paired": 4, "text": 2}}
    assert at(found, "checkpoint.best.0.monitor") == "valid/clean/loss"
    assert found.own["updates"] == {"critic": "critic_loss", "rest_1": "loss"}
    assert at(found, "optimizers.critic.params") == ["model.critic.*"]
    assert (at(found, "optimizers.critic.lr"), at(found, "optimizers.critic.every_n_steps")) == (1.0, 2)
    assert at(found, "optimizers.critic.scheduler.lr_lambda.d_model") == 64
    assert at(found, "optimizers.rest_1.params") == ["model.encoder.*", "model.decoder.*"]
    assert at(found, "init_from") == [
        {"path": "a.pth", "mapping": {"": "model.", "encoder": "model.asr.encoder"}, "strict": True}
    ]
    assert lost(found) == {"optim_sches: mine.Cosine", "data_cfg.valid: batch_size"}
    assert "import speechain.dataset.b\n" in found.files["packages.py"]


def test_each_setting_is_one_that_the_table_names(tmp_path: Path) -> None:
    found = converted(
        tmp_path,
        text=RECIPE,
        visual_snapshot_number=2,
        visual_snapshot_interval=3,
        early_stopping_threshold=0.1,
    )
    check_keys(found)


def test_the_written_config_has_every_setting_once(tmp_path: Path) -> None:
    project = convert(ConvertRequest(trainer="speechain", config=recipe(tmp_path), output=tmp_path / "out"))
    values = read_config_file(project.path / "config.yaml").values
    assert value_at(values, ("max_epochs",)) == 2 and "speechain.variables.d_model" in dotted_keys(values)


@pytest.mark.parametrize(
    ("lines", "setting"),
    [
        ({"num_epochs": "many"}, "num_epochs"),
        ({"num_epochs": 1.5}, "num_epochs"),
        ({"num_epochs": 0}, "num_epochs"),
        ({"use_amp": 3}, "use_amp"),
        ({"grad_clip": "[1]"}, "grad_clip"),
        ({"gpus": "a,b"}, "gpus"),
        ({"best_model_selection": "[valid, loss, low, 1]"}, "best_model_selection"),
        ({"best_model_selection": "{a: 1}"}, "best_model_selection"),
        ({"bad_cases_selection": "[[wer, max]]"}, "bad_cases_selection"),
        ({"early_stopping_patience": 3}, "early_stopping_patience"),
        ({"infer_cfg": 3}, "infer_cfg"),
    ],
    ids=lambda given: ",".join(given) if isinstance(given, dict) else given,
)
def test_a_value_that_is_none(
    tmp_path: Path, lines: dict[str, object], setting: str, messages: Messages
) -> None:
    with pytest.raises(ConfigError) as error:
        converted(tmp_path, **lines)
    assert error.value.setting == setting and ":1" in str(error.value.where)
    messages.check(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "num_epochs: 3\n",
        "train_cfg: {}\ndata_cfg: {}\n",
        MINIMAL.replace("{type: noam.Noamlr, conf: {}}", "{main: 3}"),
        MINIMAL.replace("module_conf: {}", "module: {}"),
        MINIMAL.replace("toy.ToyModel", "os;x"),
        MINIMAL.replace("type: abs.Iterator, conf", "kind: abs.Iterator, configuration"),
    ],
    ids=range(6),
)
def test_an_incomplete_config(tmp_path: Path, text: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as error:
        converted(tmp_path, text=text)
    messages.check(error.value)


def test_a_file_that_is_missing(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as error:
        converted(tmp_path, "data_cfg=recipes/missing.yaml")
    assert error.value.setting == "data_cfg"
    with pytest.raises(NotFound):
        convert_speechain(tmp_path / "none.yaml", [])


@pytest.mark.parametrize("word", ["num_epoch=3", "num_epochs", "model.width=3"])
def test_a_word_that_is_no_option(tmp_path: Path, word: str, messages: Messages) -> None:
    with pytest.raises(UsageError) as error:
        converted(tmp_path, word)
    messages.check(error.value)
