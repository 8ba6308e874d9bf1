"""Packages as DLNest's own programs write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

STALE = "/nowhere/Saves/old"


def original(path: Path, files: dict[str, str] | None = None, **values: Any) -> Path:
    """Writes a package of 0.3.2 with the checkpoints 2 and 3, and a track that names 0, too."""
    args = {
        "save_root": "/nowhere/Saves", "root_file_path": STALE, "epochs": 4,
        "runner_name": "Runner", "runner_file_path": "./Model/Runner.py",
        "dataset_name": "Dataset", "dataset_file_path": "./Dataset/Dataset.py",
        "life_cycle_name": "LifeCycle", "life_cycle_file_path": "./LifeCycle.py",
        **values,
    }  # fmt: skip
    for name, text in (files or {}).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    (path / "Checkpoints").mkdir(parents=True)
    (path / "args.json").write_text(json.dumps(args))
    tracks = {"ckpt_slow": [], "ckpt_fast": [3], "ckpt_consistent": [0], "prefix": "state_"}
    (path / "_package.json").write_text(json.dumps(tracks))
    (path / "_desc: baseline").write_text("baseline")
    for id in (2, 3):
        torch.save(state(id), path / "Checkpoints" / f"state_{id}.ckpt")
    return path


def state(id: int, **changed: Any) -> dict[str, Any]:
    """What DLNest saves of a run of the test project; torch's DistributedDataParallel gave a prefix."""
    torch.manual_seed(id)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
    net.append(torch.nn.Dropout(0.3)).append(torch.nn.Linear(8, 2))
    weights = {f"module.layers.{name}": value for name, value in net.state_dict().items()}
    optimizer = torch.optim.Adam(net.parameters())
    return {
        "life_cycle": {"best": 0.5, "worse": 1},
        "dataset": {},
        "runner": {0: weights, 1: {}, "optimizer": {"optimizer": optimizer.state_dict()}, "scheduler": {}},
        "log_dict": {"loss": [np.float32(1.5), np.float64(2.5)], "acc": [0.25 * id], "all": np.arange(3)},
        "finished_epoch": id,
        **changed,
    }
