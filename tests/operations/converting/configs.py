"""Configs in the shape of SpeeChain's recipes and of CornerNet's configs, with data for the stand-ins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from roost.operations.converting.conversion import Conversion

HERE = Path(__file__).parent
SPEECHAIN, CORNERNET = HERE / "speechain_stand_in", HERE / "cornernet_stand_in"
"""Folders for PYTHONPATH, and with the code that a project of CornerNet has in it."""

RECIPE = """\
# experiment: what the whole file shares
dataset_path: DATA
dataset: toy
wav_format: wav
feat_dim: 4
batch_len: 2.4e1
d_model: 8
label_smoothing: 0.1
warmup_steps: 30
num_workers: 1

seed: 1
accum_grad: 1
grad_clip: 3
ngpu: 1
gpus: null
train: True
best_model_selection: !tuple (valid, accuracy, max, 10)
early_stopping_patience: 20
num_epochs: 2
test: False
test_model: 10_valid_accuracy_average
bad_cases_selection: [[wer, max, 30]]

data_root: !ref <dataset_path>/<dataset>/<wav_format>

infer_cfg:
  shared_args:
    beam_size: 16
  exclu_args:
    - ctc_weight: 0.0
    - ctc_weight: 0.2

data_cfg:
  train:
    type: block.BlockIterator
    conf:
      dataset_type: feats.FeatDataset
      dataset_conf:
        main_data:
          feat: !ref <data_root>/train/idx2feat
      data_len: !ref <data_root>/train/idx2len
      shuffle: True
      is_descending: True
      batch_len: !ref <batch_len>
  valid:
    type: abs.Iterator
    conf:
      dataset_type: feats.FeatDataset
      dataset_conf:
        main_data:
          feat: !ref <data_root>/valid/idx2feat
      shuffle: False
  test:
    test-clean:
      type: abs.Iterator
      conf:
        dataset_type: feats.FeatDataset
        dataset_conf:
          main_data:
            feat: !ref <data_root>/valid/idx2feat
        shuffle: False
        group_info:
          speaker: !ref <data_root>/valid/idx2spk

train_cfg:
  model:
    model_type: toy.ToyModel
    model_conf:
      customize_conf:
        width: !ref <d_model>
    module_conf:
      encoder:
        type: linear.Encoder
        conf:
          in_dim: !ref <feat_dim>
          d_model: !ref <d_model>
    criterion_conf:
      ce_loss:
        label_smoothing: !ref <label_smoothing>
  optim_sches:
    type: noam.Noamlr
    conf:
      optim_type: Adam
      optim_conf:
        lr: 0.002
        betas:
          - 0.9
          - 0.98
        eps: 1.0e-9
      warmup_steps: !ref <warmup_steps>
"""
MINIMAL = """\
data_cfg:
  train: {type: abs.Iterator, conf: {dataset_type: feats.FeatDataset, dataset_conf: {}}}
  valid: {type: abs.Iterator, conf: {dataset_type: feats.FeatDataset, dataset_conf: {}}}
train_cfg:
  model: {model_type: toy.ToyModel, module_conf: {}}
  optim_sches: {type: noam.Noamlr, conf: {}}
"""
"""Has no option at all: every default of SpeeChain."""

SQUEEZE: dict[str, Any] = {
    "system": {
        "dataset": "COCO",
        "batch_size": 48,
        "sampling_function": "cornernet",
        "train_split": "trainval",
        "val_split": "minival",
        "learning_rate": 0.00025,
        "decay_rate": 10,
        "val_iter": 100,
        "opt_algo": "adam",
        "prefetch_size": 5,
        "max_iter": 500000,
        "stepsize": 450000,
        "snapshot": 5000,
        "chunk_sizes": [10, 12, 13, 13],
        "data_dir": "./data",
    },
    "db": {"rand_scale_min": 0.6, "rand_scales": None, "rand_crop": True, "output_sizes": [[64, 64]]},
}
SQUARES: dict[str, Any] = {
    "system": {
        "dataset": "Squares",
        "batch_size": 8,
        "sampling_function": "squares",
        "val_split": "minival",
        "learning_rate": 0.05,
        "val_iter": 10,
        "max_iter": 30,
        "stepsize": 25,
        "snapshot": 10,
    },
    "db": {"size": 8},
}
"""Is trained by the stand-in."""


def check_keys(conversion: Conversion) -> None:
    """Checks that the page and the converter say the same: a setting that an option determines is in the
    row of the option."""
    for one in conversion.options.values():
        named = [
            name.replace("optimizers.NAME", "optimizers.main").replace(".N.", ".") for name in one.option.keys
        ]
        for key in one.keys:
            if not key.startswith(f"{conversion.section}."):
                assert any(
                    f"{name}.".startswith(f"{key}.") or f"{key}.".startswith(f"{name}.") for name in named
                ), (
                    one.option.name,
                    key,
                )


def recipe(folder: Path, text: str = RECIPE) -> Path:
    """Writes a recipe below a folder, and the data that it names."""
    for split, count in (("train", 40), ("valid", 8)):
        place = folder / "data" / "toy" / "wav" / split
        place.mkdir(parents=True, exist_ok=True)
        rows = [(f"u{number}", number % 2, 3 + number % 5) for number in range(count)]
        (place / "idx2feat").write_text("".join(f"{name} {label} {size}\n" for name, label, size in rows))
        (place / "idx2len").write_text("".join(f"{name} {size}\n" for name, _, size in rows))
        (place / "idx2spk").write_text("".join(f"{name} s{label}\n" for name, label, _ in rows))
    file = folder / "recipes" / "asr" / "exp_cfg" / "100-bpe_tiny.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.replace("DATA", str(folder / "data")))
    return file


def json_config(folder: Path, values: object, name: str = "Squares_Tiny") -> Path:
    """Writes a config of CornerNet."""
    file = folder / "configs" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values))
    return file
