"""Configs as other tools write them, and what their keys are called here."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest
import yaml

from roost.cli.__main__ import COMMANDS, roost
from roost.config import settings
from roost.config.other_tools import known_tools
from roost.config.other_tools.known_tools import TOOLS
from tools.migration_pages import cornernet, speechain
from tools.migration_pages.page import Page, help_of

LIGHTNING = """
seed_everything: 42
trainer: {accelerator: gpu, devices: 2, strategy: ddp, precision: 16-mixed, max_epochs: 90,
          gradient_clip_val: 1.0}
model: {class_path: my.ImageNetModel, init_args: {arch: resnet18, lr: 0.1}}
data: {class_path: my.ImageNetData, init_args: {data_path: /data}}
ckpt_path: null
"""
HYDRA = """
defaults: [_self_, {dataset: cifar10}, {model: resnet}, {override hydra/launcher: submitit_slurm}]
optimizer: {_target_: torch.optim.SGD, lr: 0.1}
hydra: {run: {dir: "outputs/${now:%Y-%m-%d}"}}
"""
DETECTRON2 = """
_BASE_: ../Base-RCNN-FPN.yaml
MODEL: {WEIGHTS: "detectron2://ImageNetPretrained/MSRA/R-50.pkl", MASK_ON: true}
SOLVER: {IMS_PER_BATCH: 16, BASE_LR: 0.02, STEPS: [60000, 80000], MAX_ITER: 90000}
DATASETS: {TRAIN: [coco_2017_train], TEST: [coco_2017_val]}
"""
HUGGING_FACE = """
{"model_name_or_path": "bert-base-cased", "dataset_name": "imdb", "output_dir": "out", "learning_rate": 2e-5,
 "per_device_train_batch_size": 8, "num_train_epochs": 3, "fp16": true, "eval_strategy": "epoch"}
"""
ACCELERATE = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_GPU
downcast_bf16: 'no'
gpu_ids: all
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 4
"""
DEEPSPEED = """
{"train_batch_size": 32, "fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}
"""
SPEECHAIN_EXPERIMENT = """
dataset: librispeech
train_result_path: null
data_cfg: recipes/asr/data.yaml
train_cfg: recipes/asr/train.yaml
num_epochs: 50
use_amp: true
accum_grad: 4
ngpu: 2
"""
SPEECHAIN_MODEL = """
model: {model_type: ar_asr.ARASR, module_conf: {}, criterion_conf: {}}
optim_sches: {type: noam.Noamlr, conf: {optim_type: Adam}}
"""
SPEECHAIN_DATA = """
train: {type: block.BlockIterator, conf: {dataset_type: speech_text.SpeechTextDataset, batch_len: 1e7}}
valid: {type: abs.Iterator, conf: {}}
"""
CORNERNET = """
{"system": {"dataset": "COCO", "batch_size": 55, "sampling_function": "cornernet_saccade", "max_iter": 500000,
 "learning_rate": 0.00025, "stepsize": 450000, "snapshot": 5000}, "db": {"rand_scale_min": 0.5}}
"""
LIBAI = """
train: {output_dir: ./output, train_micro_batch_size: 32, num_accumulation_steps: 1, train_iter: 10000,
        amp: {enabled: true}, dist: {data_parallel_size: 4}}
graph: {enabled: true}
"""
TORCHTUNE = """
output_dir: /tmp/torchtune
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, path: /tmp/tokenizer.model}
model: {_component_: torchtune.models.llama3_2.lora_llama3_2_1b}
epochs: 1
batch_size: 4
dtype: bf16
"""
MMENGINE = """
_base_: [../_base_/models/resnet50.py]
optim_wrapper: {optimizer: {type: SGD, lr: 0.1}}
train_cfg: {by_epoch: true, max_epochs: 100}
train_dataloader: {batch_size: 32}
"""
SWEEP = """
program: train.py
method: bayes
metric: {name: val_loss, goal: minimize}
parameters: {lr: {min: 0.0001, max: 0.1}}
"""
CONFIGS = {
    "Lightning's CLI": [LIGHTNING, f"fit:{LIGHTNING.replace(chr(10), chr(10) + '  ')}"],
    "accelerate": [ACCELERATE],
    "DeepSpeed": [DEEPSPEED],
    "Hugging Face's Trainer": [HUGGING_FACE],
    "SpeeChain": [SPEECHAIN_EXPERIMENT, SPEECHAIN_MODEL, SPEECHAIN_DATA],
    "CornerNet": [CORNERNET],
    "detectron2": [DETECTRON2],
    "LiBai": [LIBAI],
    "torchtune": [TORCHTUNE],
    "MMEngine": [MMENGINE],
    "Weights & Biases sweeps": [SWEEP],
    "Hydra": [HYDRA, "model: {layers: [{_target_: torch.nn.Linear}]}"],
}


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, text) for name, texts in CONFIGS.items() for text in texts],
    ids=[f"{name}-{number}" for name, texts in CONFIGS.items() for number, _ in enumerate(texts)],
)
def test_a_config_is_recognised(name: str, text: str) -> None:
    tool = known_tools.find_tool(yaml.safe_load(text))
    assert tool is not None and tool.name == name


def test_each_tool_has_a_config_here() -> None:
    assert CONFIGS.keys() == {tool.name for tool in TOOLS if tool.signatures}


@pytest.mark.parametrize("values", [{}, {"max_epochs": 3}, {"model": {"width": 3}, "lr": 0.1}])
def test_another_config_is_of_no_tool(values: dict[str, Any]) -> None:
    assert known_tools.find_tool(values) is None


def test_the_keys_of_a_config_that_have_a_name_here() -> None:
    tool = known_tools.find_tool(yaml.safe_load(DETECTRON2))
    assert tool is not None
    found = tool.find_keys(yaml.safe_load(DETECTRON2))
    assert found["SOLVER.MAX_ITER"] == "`max_steps`" and "SOLVER.GAMMA" not in found


def test_every_setting_and_command_that_is_named_exists() -> None:
    for tool in TOOLS:
        for key, here in tool.keys.items():
            setting = known_tools.setting_of(here)
            assert setting is None or setting == "include" or help_of(setting) is not None, (tool.name, key)
            for line in (part for part in here.split("`")[1::2] if part.startswith("roost ")):
                _, command, *arguments = shlex.split(line)
                found = roost.get_command(click.Context(roost), command)
                assert command in COMMANDS and found is not None
                found.make_context(
                    command, [one for one in arguments if one != "CONFIG"], resilient_parsing=True
                )


def test_common_names_are_of_settings() -> None:
    assert all(help_of(here) is not None for here in known_tools.COMMON_NAMES)
    assert not {name for names in known_tools.COMMON_NAMES.values() for name in names} & set(
        settings.setting_names()
    )


def test_a_name_is_ambiguous_only_if_it_is_in_a_table() -> None:
    known = {key.partition(".")[0] for tool in TOOLS for key in tool.keys}
    known |= {name for names in known_tools.COMMON_NAMES.values() for name in names}
    assert known >= known_tools.AMBIGUOUS_NAMES


@pytest.mark.parametrize(
    ("name", "page", "prefix"), [("SpeeChain", speechain.PAGE, ""), ("CornerNet", cornernet.PAGE, "system.")]
)
def test_the_tables_agree_with_the_page_of_the_tool(name: str, page: Page, prefix: str) -> None:
    (tool,) = (tool for tool in TOOLS if tool.name == name)
    options = {f"{prefix}{option.name}": option for group in page.groups for option in group.options}
    for key, here in tool.keys.items():
        option = options.get(key)
        setting = known_tools.setting_of(here)
        if option is not None and option.keys and setting is not None:
            assert any(one.startswith(setting) for one in option.keys), key
    assert len(tool.keys.keys() & options.keys()) > len(tool.keys) / 2
