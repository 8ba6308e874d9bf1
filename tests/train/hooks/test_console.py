from __future__ import annotations

import pytest

from roost.train.checkpoints import Checkpoints
from roost.train.hooks import Console, Records, Save, Validate
from roost.train.hooks.console import line
from roost.train.until import Until
from tests.train.parts import MLP, Still, StopAt, built, loader, plain


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_line_per_validation_and_few_between(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    loaders = {"valid": loader(Still(), 8, shuffle=False)}
    hooks = [Records(f"{tmp_path}/records", "1"), Validate("4"), Console(), Save("100")]
    plain(built(MLP), Still(), hooks, until=9, loaders=loaders).fit()
    begin, *middle, end = said(capsys)
    assert begin == "training: until 9 steps, 7 steps per epoch, 74 parameters"
    assert [text.split("train:")[0] for text in middle] == [
        "epoch 0  step 4/9  ",
        "epoch 1  step 8/9  ",
        "epoch 1  step 9/9  ",
    ]
    assert all("  valid: loss 0." in text for text in middle)
    assert end == "finished at step 9"


def test_every_row_when_there_is_time(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    plain(built(MLP), Still(), [Records(f"{tmp_path}/records", "3"), Console(0.0)], until="1ep").fit()
    begin, *middle, _ = said(capsys)
    assert begin.startswith("training: until 1 epochs, ")
    assert [text.split()[:4] for text in middle] == [
        ["epoch", "0/1", "step", "3/7"],
        ["epoch", "0/1", "step", "6/7"],
        ["epoch", "1/1", "step", "7/7"],
    ]


def test_a_stop_and_going_on(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    for hooks in ([StopAt(2)], []):
        checkpoints = Checkpoints(f"{tmp_path}/checkpoints")
        plain(built(MLP), Still(), [Console(), *hooks], until=Until(5, 3), checkpoints=checkpoints).fit()
    first, stopped, second, finished = said(capsys)
    assert first.startswith("training: until 3 epochs or 5 steps")
    assert stopped == "test at step 2"
    assert second.startswith("going on from step 2: ")
    assert finished == "finished at step 5"


def test_numbers_are_short_and_stand_under_their_split() -> None:
    trainer = plain(built(MLP), Still(), until="90min")
    row = {"train/a": 0.123456, "lr": 1e-9, "valid/x/a": float("nan"), "train/b": 2.0}
    assert line(trainer, row) == "epoch 0  step 0  train: a 0.123 b 2  valid/x: a nan  lr 1e-09"
