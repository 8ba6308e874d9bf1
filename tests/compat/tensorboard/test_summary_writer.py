"""`roost.compat.tensorboard.SummaryWriter`: the calls of torch's writer, recorded in a package."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch.utils import tensorboard as original

import roost
from roost.base.errors import Refused
from roost.compat.tensorboard import SummaryWriter, summary_writer
from tests.messages import Messages


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(summary_writer.UNSUPPORTED, "_said", set())
    yield


def rows_of(writer: SummaryWriter) -> list[tuple[int, dict[str, float]]]:
    own = ("step", "epoch", "time")
    rows = roost.open_package(Path(writer.log_dir)).rows()
    return [(row["step"], {name: row[name] for name in row if name not in own}) for row in rows]


RECORDED = [
    "__init__", "add_scalar", "add_scalars", "add_hparams", "add_image", "add_images", "add_histogram",
    "add_figure", "add_audio", "add_text", "flush", "close", "get_logdir",
]  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_the_signatures_are_those_of_torch(name: str) -> None:
    theirs = inspect.signature(getattr(original.SummaryWriter, name)).parameters
    ours = [
        one
        for one in inspect.signature(getattr(SummaryWriter, name)).parameters.values()
        if one.name != "run"
    ]
    assert [(one.name, one.default) for one in ours] == [(one.name, one.default) for one in theirs.values()]


def test_scalars_of_a_step_are_one_row_and_late_ones_keep_their_own_step(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path / "one") as writer:
        for step in range(6):
            writer.add_scalar("train/loss", torch.tensor(1.0 / (step + 1), requires_grad=True), step)
            writer.add_scalars("lr", {"a": 0.1, "b": np.float32(2)}, step)
            if step % 3 == 2:
                writer.add_scalar("valid/loss", step, step // 3)
        for epoch in (0, 1, 2):
            writer.add_scalar("offline", epoch, epoch)
        for value in (5, 6):
            writer.add_scalar("counted", value)
    rows = rows_of(writer)
    assert [step for step, _ in rows] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert rows[1][1] == {"train/loss": 0.5, "lr/a": 0.1, "lr/b": 2.0}
    assert rows[2][1]["valid/loss"] == 2 and rows[2][1]["valid/loss/step"] == 0
    assert [row.get("offline") for _, row in rows[5:]] == [0, 1, 2, None]
    assert [row.get("offline/step") for _, row in rows[5:]] == [0, 1, 2, None]
    assert [row.get("counted") for _, row in rows[7:]] == [5, 6]
    assert roost.open_package(tmp_path / "one").state == "succeeded"


def test_media(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure, _ = plt.subplots()
    with SummaryWriter(log_dir=str(tmp_path / "one")) as writer:
        writer.add_image("a/picture", torch.rand(3, 4, 5), 2)
        writer.add_image("grey", np.zeros((4, 5), np.uint8), 2, dataformats="HW")
        writer.add_images("several", torch.rand(3, 3, 4, 5), 2)
        writer.add_histogram("weights", torch.randn(50), 2)
        writer.add_histogram("edges", [1, 2, 3], 2, bins=[0, 2, 4])
        writer.add_text("text", "hello", 2)
        writer.add_figure("figure", figure, 2)
        writer.add_audio("sound", torch.zeros(1, 100), 2, sample_rate=8000)
        writer.add_hparams({"lr": 0.1, "name": "x"}, {"hparam/accuracy": 0.5}, global_step=2)
        for _ in range(2):
            writer.add_graph(torch.nn.Linear(1, 1)).anything()
            writer.add_scalar("word", "text", 3)
            writer.add_scalar("huge", 10**400, 3)
            writer.add_scalar("epoch", 1, 3)
            writer.add_image("broken", torch.rand(7), 3, dataformats="CHW")
    assert figure.number not in plt.get_fignums()
    media = tmp_path / "one" / "media" / "2"
    expected = "a_picture.png edges.json figure.png grey.png hparams.txt several.png sound.wav text.txt"
    assert sorted(path.name for path in media.iterdir()) == [*expected.split(), "weights.json"]
    assert '"counts": [1, 2]' in (media / "edges.json").read_text()
    assert (media / "hparams.txt").read_text() == "lr: 0.1\nname: x"
    assert rows_of(writer) == [(2, {"hparam/accuracy": 0.5}), (3, {"log/epoch": 1.0})]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 5 and all(line.startswith("roost.compat.tensorboard: ") for line in said)


def test_threads_and_forked_processes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def add(tag: str) -> None:
        for step in range(100):
            writer.add_scalar(tag, step, step)

    with SummaryWriter(tmp_path / "one") as writer:
        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(add, tag) for tag in "abcd"]:
                done.result()
        if not (child := os.fork()):
            try:
                writer.add_scalar("a", 1, 1000)
                writer.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    rows = rows_of(writer)
    assert sum(len(set(row) & set("abcd")) for _, row in rows) == 400 and rows[-1][0] < 1000
    assert capfd.readouterr().err.count("was forked from its own: nothing is recorded") == 1


def test_a_killed_program_continues_the_package_of_its_folder(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path / "one")
    for step in range(5):
        writer.add_scalar("loss", step, step)
    writer._end(KeyboardInterrupt())
    with SummaryWriter(tmp_path / "one", purge_step=3) as again:
        for step in range(3, 6):
            again.add_scalar("loss", 10 * step, step)
    assert [(step, row["loss"]) for step, row in rows_of(again)] == [
        (0, 0), (1, 1), (2, 2), (3, 30), (4, 40), (5, 50)
    ]  # fmt: skip


def test_where_the_package_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="/a b") as writer:
        assert Path(writer.log_dir).parent == tmp_path / "runs"
    with SummaryWriter("made") as writer:
        assert Path(writer.get_logdir()).parent == tmp_path / "made"
    (tmp_path / "runs" / "old").mkdir()
    with SummaryWriter("runs/old") as writer:
        assert Path(writer.log_dir).parent == tmp_path / "runs" / "old"
    given: dict[str, Any] = {"lr": 0.1}
    with roost.init(given, name="own", root=tmp_path / "runs") as run:
        with SummaryWriter(run=run) as writer:
            writer.add_scalar("loss", 1, 4)
        run.log({"loss": 2})
    assert [row["step"] for row in roost.open_package(tmp_path / "runs" / "own").rows()] == [4, 5]
    with pytest.raises(Refused) as caught:
        SummaryWriter("runs/own")
    messages.check(caught.value)


def test_an_error_within_the_block_is_that_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), SummaryWriter(tmp_path / "one") as writer:
        writer.add_scalar("loss", 1 / 0, 0)
    assert roost.open_package(tmp_path / "one").state == "failed"
