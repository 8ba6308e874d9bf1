"""The examples in docs/ are run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

import roost
from roost.config import layers
from roost.config.settings import typed

GUIDE = (Path(__file__).parents[1] / "docs" / "guide.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def run_block(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(text, "guide.md", "exec"), names)
    return names


def test_the_config_is_understood(tmp_path: Path) -> None:
    (config,) = blocks("yaml")
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "model.yaml").write_text("width: 32\n")
    loaded = layers.load(tmp_path / "config.yaml")
    settings = typed(loaded.values)
    assert loaded.values["width"] == 64 and settings.checkpoint.every == ["1ep", "10min"]


def test_the_hook_and_the_gan_train(tmp_path: Path) -> None:
    hook, gan = (run_block(text) for text in blocks("python"))
    runner = gan["Gan"]()
    runner.build()
    data = torch.randn(32, 2)
    loader = roost.Loader([row for row in data], plan=roost.BatchPlan(32, 8))
    from roost.train.hooks import Records

    rules = hook["Rules"]()
    rules.every = "2"
    trainer = roost.Trainer(
        runner,
        {"train": loader},
        roost.Stepper(runner.optimizers()),
        hooks=[Records(tmp_path / "records", 1), rules],
        checkpoints=roost.Checkpoints(tmp_path / "checkpoints"),
        until="2ep",
    )
    assert trainer.fit() == "finished"
    assert {"train/critic_loss", "train/generator_loss"} <= trainer.row.keys()
    assert "Rules" in trainer.plan()
