"""Keys of other tools in a config: refused with ours, unless they are the user's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from roost.base.errors import ConfigError
from roost.config import layers, settings
from roost.config.layers import Config
from roost.config.other_tools import foreign_keys
from roost.config.values.overrides import apply_overrides
from tests.config.other_tools.test_known_tools import CONFIGS
from tests.messages import Messages

BASE = {
    "runner": "Model/Runner.py:Runner",
    "dataset": "Dataset/Dataset.py:Dataset",
    "max_epochs": 30,
    "data": {"batch_size": 64},
    "optimizers": {"main": {"class": "torch.optim.SGD", "lr": 0.1}},
}


def config(folder: Path, values: dict[str, Any], *overrides: str) -> Config:
    (folder / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return layers.load(folder / "config.yaml", overrides=overrides)


REFUSED = [
    ({"num_epochs": 200}, "`max_epochs: ...`"),
    ({"use_amp": True}, "`precision: fp16`"),
    ({"use_amp": False}, "remove it"),
    ({"fp16": False, "torch_compile": False}, "remove it"),
    ({"fp16": False, "precision": "bf16"}, "`precision: ...`"),
    ({"early_stop": False}, "remove it"),
    ({"accum_grad": 4}, "`gradient_accumulation_steps: ...`"),
    ({"early_stopping_patience": 20}, "`early_stopping: {patience: ...}`"),
    ({"best_model_selection": [["valid", "accuracy", "max", 3]]}, "`checkpoint: {best: ["),
    ({"ngpu": 2}, "`devices: ...`"),
    ({"learning_rate": 0.5}, "`optimizers: {main: {lr: ...}}`"),
    ({"lr": 0.5}, "`optimizers: {main: {lr: ...}}`"),
    ({"batch_size": 256}, "`data: {batch_size: ...}`"),
    ({"num_workers": 4}, "`data: {num_workers: ...}`"),
    ({"prefetch_factor": 9}, "`data: {prefetch: ...}`"),
    ({"child_jsons": ["model.json"]}, "`include: ...`"),
    ({"checkpoint_args": {"max_ckpt_in_fast_track": 1}}, "`checkpoint: {fast: ...}`"),
    ({"trainer": {"max_epochs": 5}}, "`options: {trainer: {type: dict}}`"),
    ({"trainer": {"check_val_every_n_epoch": 5}}, "`validate_every: 5ep`"),
    ({"defaults": ["model"]}, "`include: ...`"),
    ({"hydra": {"run": {"dir": "out"}}}, "`save_root: ...`"),
    ({"hydra": {"job_logging": "none"}}, "`options: {hydra: {type: dict}}`"),
    ({"ckpt_path": "last.ckpt"}, "`roost continue PACKAGE`"),
    ({"run_name": "first"}, "`roost run CONFIG --name NAME`"),
    ({"num_epochs": 200, "epochs": "${num_epochs}"}, "`max_epochs: ...`"),
    ({"num_epochs": 200, "model": {"epochs": "${num_epochs}"}}, "`max_epochs: ...`"),
    ({"SOLVER": {"MAX_ITER": 5}}, "`max_steps: ...`"),
    ({"wandb": {"project": "x"}}, "`mirrors: {wandb: {project: ...}}`"),
    ({"logger": "wandb"}, "`mirrors: ...`"),
    ({"experiment": "foo"}, "`roost run CONFIG -f experiment/NAME.yaml`"),
    ({"num_epochs": 200, "use_amp": True, "ngpu": 2}, "`max_epochs: ...`"),
]


@pytest.mark.parametrize(
    ("own", "ours"), REFUSED, ids=lambda one: next(iter(one)) if isinstance(one, dict) else ""
)
def test_a_key_without_effect_is_refused(
    tmp_path: Path, own: dict[str, Any], ours: str, messages: Messages
) -> None:
    with pytest.raises(ConfigError) as error:
        foreign_keys.refuse(config(tmp_path, {**BASE, **own}))
    assert ours in str(error.value.fix) and str(error.value.where).startswith("config.yaml:")
    messages.check(error.value)


@pytest.mark.parametrize(
    "own",
    [
        {"num_epochs": 200, "options": {"num_epochs": {"type": "int"}}},
        {"trainer": {"max_epochs": 5}, "options": {"trainer": {"type": "dict"}}},
        {
            "SOLVER": {"MAX_ITER": 5},
            "fp16": True,
            "options": {"SOLVER": {"type": "dict"}, "fp16": {"type": "bool"}},
        },
        {"num_epochs": 200, "length": "${num_epochs}", "max_epochs": "${length}"},
        {"num_epochs": 200, "options": {"length": {"type": "int"}}, "length": "${num_epochs}"},
        {"wandb": {"project": "x"}, "options": {"wandb": {"type": "dict"}}},
        {"experiment": "foo", "options": {"experiment": {"type": "str"}}},
        {"num_epochs": 30},
        {"num_epochs": 200, "max_epochs": "${num_epochs}"},
        {"num_epochs": None},
        {"trainer": {"max_epochs": 5}, "max_epochs": "${trainer.max_epochs}"},
        {"batch_size": 256, "data": {"batch_size": "${batch_size}"}},
        {"learning_rate": 0.5, "lr": 0.5, "optimizers": None},
        {"learning_rate": 0.1},
        {"model": {"model_type": "resnet", "lr": 1, "num_epochs": 3}, "train": {"type": "x"}},
        {"steps": 1000, "sampler": "ddim", "timeout": 3, "system": {"max_iter": 5}},
    ],
)
def test_a_key_of_the_user_is_accepted(tmp_path: Path, own: dict[str, Any]) -> None:
    foreign_keys.refuse(config(tmp_path, {**BASE, **own}))


@pytest.mark.parametrize(
    ("override", "written"),
    [
        ("epochs=4", "max_epochs=4"),
        ("trainer.max_epochs=3", "max_epochs=3"),
        ("lr=0.5", "optimizers.main.lr=0.5"),
        ("weight_decay=0.1", "+optimizers.main.weight_decay=0.1"),
        ("fp16=true", "precision=fp16"),
        ("bf16=true", "precision=bf16"),
        ("eval_strategy=epoch", "validate_every=1ep"),
        ("valid_per_epochs=3", "validate_every=3ep"),
        ("ngpu=2", "devices=2"),
        ("hydra.run.dir=out", "save_root=out"),
        ("wandb.project=x", "mirrors.wandb.project=x"),
        ("wandb=true", "mirrors.wandb.project=VALUE"),
        ("wandb.mode=online", "mirrors.wandb.mode=online"),
        ("experiment=foo", ""),
        ("output_root=out", None),
        ("hydra.verbose=true", ""),
        ("defaults=[model]", ""),
        ("ckpt_path=last.ckpt", ""),
        ("use_cpu=true", ""),
        ("use_amp=false", ""),
    ],
)
def test_the_command_line_is_answered_alike_with_every_sign(
    tmp_path: Path, override: str, written: str | None, messages: Messages
) -> None:
    if written is None:
        foreign_keys.refuse(config(tmp_path, BASE, f"+{override}"))
        return
    texts = []
    for sign in ("", "+", "++"):
        with pytest.raises(ConfigError) as error:
            foreign_keys.refuse(config(tmp_path, BASE, f"{sign}{override}"))
        texts.append(re.sub("hydra.verbose", "hydra", str(error.value)))
        assert error.value.where == "command line"
    assert len(set(texts)) == 1
    messages.check(texts[0])
    assert (
        f"write {written}, or declare" in texts[0]
        if written
        else "write " not in texts[0].replace("write `include", "")
    )
    if written:
        settings.parse_settings(config(tmp_path, BASE, written).values)


def test_a_key_of_another_tool_is_added_to_no_package(messages: Messages) -> None:
    def added(values: dict[str, Any], *overrides: str) -> None:
        foreign_keys.refuse_added(values, apply_overrides(values, overrides))

    for override in ("+num_epochs=3", "+trainer.max_epochs=3", "+hydra={run: {dir: x}}"):
        with pytest.raises(ConfigError) as caught:
            added(BASE, override)
        messages.check(caught.value)
    added({**BASE, "num_epochs": 3}, "num_epochs=5", "+num_epochs=6")  # a package of an older version
    added(BASE, "+num_epochs=3", "max_epochs=${num_epochs}")
    added(BASE, "+num_epochs=3", "+options.num_epochs={type: int}")
    added(BASE, "+num_epochs=30")


def test_an_override_that_a_setting_refers_to_is_added(tmp_path: Path) -> None:
    values = {**BASE, "max_epochs": "${num_epochs}"}
    with pytest.raises(ConfigError) as error:
        config(tmp_path, values, "num_epochs=3")
    assert str(error.value.fix).endswith("use +num_epochs=3 to add it")
    foreign_keys.refuse(config(tmp_path, values, "+num_epochs=3"))


def test_a_reference_counts_even_where_the_command_line_replaces_it(tmp_path: Path) -> None:
    values = {**BASE, "num_epochs": 200, "max_epochs": "${num_epochs}"}
    foreign_keys.refuse(config(tmp_path, values, "max_epochs=1"))


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, text) for name, texts in CONFIGS.items() for text in texts],
    ids=[f"{name}-{number}" for name, texts in CONFIGS.items() for number, _ in enumerate(texts)],
)
def test_a_config_of_another_tool_is_refused(
    tmp_path: Path, name: str, text: str, messages: Messages
) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        foreign_keys.refuse(layers.load(tmp_path / "config.yaml"))
    assert name in error.value.message and re.search(r"docs/(coming-from\.md#|from-)", str(error.value.fix))
    assert "\n" not in str(error.value)
    messages.check(error.value)
