"""`roost.compat.wandb`: scripts written for W&B are recorded by W&B's rule of steps, killed, and continue."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import roost
import roost.compat.wandb as wandb
from roost.base.errors import NotFound, Refused, UsageError
from roost.train.mirrors import wandb_offline_log
from tests.messages import Messages

WANDB = "import wandb"
ROOST = "import roost.compat.wandb as wandb"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins without a run, without variables of W&B, and with nothing said."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(wandb.UNSUPPORTED, "_said", set())
    yield
    wandb.finish()


def run_script(text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(text)
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", **variables}
    command = [sys.executable, "script.py"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def run_forked(text: str, folder: Path, **variables: str) -> int:
    """Runs a script in a fork of this process, which has torch already; returns its exit code."""
    folder.mkdir(exist_ok=True)
    if not (child := os.fork()):
        try:
            os.chdir(folder)
            os.environ.update(variables)
            exec(compile(text, "script.py", "exec"), {"__name__": "__main__"})  # noqa: S102  - text of this file
            os._exit(0)
        except BaseException:  # noqa: BLE001  - the child must not go on with the tests
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def rows_of(package: Path | str) -> dict[int, dict[str, float]]:
    """Values by step, without what a row has besides."""
    own = ("step", "epoch", "time")
    return {
        row["step"]: {name: value for name, value in row.items() if name not in own}
        for row in roost.open_package(Path(package)).rows()
    }


STEPS = """
import wandb
wandb.init(project="p", id="one", config={"lr": 0.1})
wandb.log({"loss": 1.0})
wandb.log({"loss": 0.9}, commit=False)
wandb.log({"accuracy": 0.5})
wandb.log({"loss": 0.8}, step=5)
wandb.log({"accuracy": 0.6}, step=5)
wandb.log({"loss": 0.7}, step=4)
wandb.log({"loss": 0.6}, step=5)
wandb.log({"extra": 2})
wandb.log({"loss": 0.5}, step=9, commit=True)
wandb.log({"loss": 0.4})
wandb.log({"open": 1}, commit=False)
wandb.finish()
"""


def test_rows_are_those_of_wandb_itself(tmp_path: Path) -> None:
    done = run_script(STEPS, tmp_path / "theirs")
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "theirs").glob("wandb/offline-run-*/run-*.wandb")
    theirs = {
        row["_step"]: {name: float(value) for name, value in row.items() if not name.startswith("_")}
        for row in wandb_offline_log.history(file)
    }
    done = run_script(STEPS.replace(WANDB, ROOST), tmp_path / "ours")
    assert done.returncode == 0, done.stderr
    assert rows_of(tmp_path / "ours" / "runs" / "one") == theirs
    assert done.stderr.count("\n") == 1 and "step=4" in done.stderr


TRAINING = """
import os, random, signal, sys
import torch
import wandb

random.seed(1); torch.manual_seed(1)
run = wandb.init(project="digits", id="one", resume="allow", config={"lr": 0.01})
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=wandb.config.lr)
inputs = torch.arange(96.0).reshape(24, 4) / 96
data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
loader = torch.utils.data.DataLoader(data, batch_size=5, shuffle=True)
KILL_AT = int(os.environ.get("KILL_AT", "0"))
"""
BY_ROOST = """
batches = run.resumable(loader)
run.load_checkpoint(model=model, optimizer=optimizer)
step = batches.epoch * len(batches) + batches.batch
for epoch in range(batches.epoch, 3):
    for x, y in batches:
        loss = ((model(x) - y) ** 2).mean() + 0.01 * random.random()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        wandb.log({"train/loss": loss, "epoch": epoch}, commit=step % 2 == 0)
        step += 1
        if step == KILL_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        if step % 4 == 0:
            run.save_checkpoint(model=model, optimizer=optimizer)
run.save_checkpoint(model=model, optimizer=optimizer)
wandb.finish()
"""
BY_ITSELF = """
step = 0
if os.path.exists("own.pt"):
    state = torch.load("own.pt", weights_only=False)
    model.load_state_dict(state["model"]); optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"]); step = state["step"]
while step < 12:
    step += 1
    loss = model(inputs).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    wandb.log({"train/loss": loss.item()}, step=step)
    if step == KILL_AT:
        os.kill(os.getpid(), signal.SIGKILL)
    if step % 3 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save({**state, "rng": torch.get_rng_state()}, "own.pt")
wandb.finish()
"""


@pytest.mark.parametrize("loop", [BY_ROOST, BY_ITSELF], ids=["by roost", "by itself"])
def test_a_killed_script_ends_bit_for_bit_as_one_that_was_not(loop: str, tmp_path: Path) -> None:
    text = TRAINING.replace(WANDB, ROOST) + loop
    assert run_forked(text, tmp_path / "whole") == 0
    for kill_at in ("2", "6", "11", "0"):
        code = run_forked(text, tmp_path / "killed", KILL_AT=kill_at)
        assert code == (0 if kill_at == "0" else -9)
    whole, killed = (tmp_path / name / "runs" / "one" for name in ("whole", "killed"))
    assert rows_of(killed) == rows_of(whole) and len(rows_of(whole)) >= 7
    assert len(list((killed / "sessions").glob("[0-9].json"))) == 4
    if loop is BY_ROOST:
        one, other = (roost.open_package(path).load() for path in (whole, killed))
        for name, tensor in one["objects"]["model"].items():
            assert torch.equal(torch.as_tensor(tensor), torch.as_tensor(other["objects"]["model"][name]))


def test_a_program_without_finish_has_stopped_and_its_open_row_is_kept(tmp_path: Path) -> None:
    done = run_script(f"{ROOST}\nwandb.init(id='one')\nwandb.log({{'a': 1}}, commit=False)", tmp_path)
    assert done.returncode == 0 and rows_of(tmp_path / "runs" / "one") == {0: {"a": 1.0}}, done.stderr
    assert roost.open_package(tmp_path / "runs" / "one").state == "stopped"


def test_values_of_every_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = wandb.init(dir=tmp_path, name="kinds", tags=["my tag"], notes="why", group="g", entity="team")
    for _ in range(2):
        wandb.log({"loss": torch.tensor([0.5], requires_grad=True), "flag": True, "np": np.float32(2)})
        wandb.log({"huge": 10**400}, commit=False)
        wandb.log({"x": 1}, step="far")  # type: ignore[arg-type]
        wandb.log({"epoch": 3, "deep": {"er": 1}, "text": "a", "list": [1, 2], "video": wandb.Video("x")})
    picture = torch.rand(2, 3, 4, 5)
    table = wandb.Table(columns=["a"], data=[[1]])
    table.add_data(wandb.Image(picture))
    table.add_column("b", [3, 4])
    assert table.get_column("b") == [3, 4]
    shown = {
        "one": wandb.Image(np.zeros((4, 5)), caption="c", boxes={}),
        "many": [wandb.Image(picture), wandb.Image(picture[0])],
        "counts": wandb.Histogram(np_histogram=([1, 2], [0.0, 1.0, 3.0])),
        "numbers": wandb.Histogram([1, 2, 3], num_bins=3),
        "tensor": torch.rand(7),
        "sound": wandb.Audio(np.zeros((100, 2)), sample_rate=8000),
        "table": table,
        ".page": wandb.Html("<p>"),
        "broken": wandb.Image("absent.png"),
    }
    wandb.log(shown, step=7)
    run.watch(torch.nn.Linear(1, 1), log="all")
    wandb.watch(None).anything["goes"] = 1
    wandb.log_artifact(wandb.Artifact("model", type="model").add_file("x"))
    run.define_metric("loss", step_metric="epoch", summary="min")
    run.summary["best"] = 0.25
    run.summary.update({"why": "text"})
    assert run.summary["loss"] == 0.5 and run.summary.best == 0.25 and "deep.er" in run.summary
    wandb.finish()
    wandb.finish()
    run.log({"late": 1})
    assert wandb.run is None
    rows = rows_of(run.path)
    assert rows[0] == rows[2] == {"loss": 0.5, "flag": 1.0, "np": 2.0}
    assert rows[1] == {"log/epoch": 3.0, "deep.er": 1.0} and rows[7] == {"summary/best": 0.25}
    media = tmp_path / "runs" / "kinds" / "media" / "7"
    expected = (
        "counts.json many_0.png many_1.png numbers.json one.png page.txt sound.wav table.txt tensor.json"
    )
    assert sorted(path.name for path in media.iterdir()) == expected.split()
    assert (media / "counts.json").read_text() == '{"counts": [1, 2], "edges": [0.0, 1.0, 3.0]}'
    assert (media / "table.txt").read_text() == "a,b\n1,3\n<Image>,4\n"
    package = roost.open_package(run.path)
    assert package.tags == ["my-tag", "group:g"] and package.note == "why" and package.state == "succeeded"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(set(said)) and all(line.startswith("roost.compat.wandb: ") for line in said)
    for name in (
        "entity",
        "text",
        "list",
        "Video",
        "caption",
        "boxes",
        "Artifact",
        "step_metric",
        "broken",
        "huge",
        "far",
    ):
        assert sum(name in line for line in said) == 1, name


def test_threads_and_forked_processes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wandb.init(dir=tmp_path, id="one")
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(lambda: [wandb.log({"a": 1}) for _ in range(100)]) for _ in range(4)]:
            done.result()
    wandb.summary["best"] = 1
    run = wandb.run
    if not (child := os.fork()):  # a loader worker, or a program that ends without `finish`
        try:
            wandb.log({"a": 2})
            run._end_with_program()
            wandb.finish()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    wandb.log({"a": 3})
    wandb.finish()
    metrics = roost.open_package(tmp_path / "runs" / "one").metrics()
    assert metrics["a"].values.tolist() == [1] * 400 + [3]
    assert metrics["summary/best"].values.tolist() == [1]
    assert capfd.readouterr().err.count("was forked from that of `init`: nothing is recorded") == 1


def test_the_config_is_complete_with_what_follows_init(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = wandb.init(dir=tmp_path, config=Namespace(lr=0.1, secret=1), config_exclude_keys=["secret"])
    wandb.config.update({"width": torch.tensor(8), "act": torch.relu})
    wandb.config.depth = 2
    wandb.config.setdefaults({"depth": 3, "seed": 5})
    assert (wandb.config["depth"], run.config.lr, "secret" in wandb.config) == (2, 0.1, False)
    before = torch.get_rng_state()
    wandb.log({"a": 1})
    assert torch.equal(before, torch.get_rng_state()), "the script seeds its generators itself"
    args = dict(roost.open_package(run.path).args)
    assert args.pop("act").startswith("<built-in") and args == {"lr": 0.1, "width": 8, "depth": 2, "seed": 5}
    wandb.config.depth = 2
    assert capsys.readouterr().err == ""
    wandb.config.late = 1
    assert "config.late" in capsys.readouterr().err


def test_settings_with_names_of_roosts_are_kept_apart(tmp_path: Path) -> None:
    run = wandb.init(dir=tmp_path, id="one", config={"checkpoint": "last.pt", "runner": "me"})
    wandb.finish()
    assert roost.open_package(run.path).args == {"config": {"checkpoint": "last.pt", "runner": "me"}}
    again = wandb.init(dir=tmp_path, id="one", resume="must")
    assert again.resumed and again.config.checkpoint == "last.pt"


def test_which_package_a_run_has(
    tmp_path: Path, messages: Messages, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {"dir": tmp_path, "reinit": True}
    first = wandb.init(name="base", config={"lr": 0.1}, **given)
    assert wandb.init(name="other", dir=tmp_path) is first, "as W&B: the open run"
    wandb.log({"a": 1})
    second = wandb.init(name="base", **given)
    wandb.log({"a": 2})
    third = wandb.init(id="base", resume="allow", **given)
    assert third.resumed and third.step == 1 and third.config.lr == 0.1
    wandb.log({"a": 3})
    assert rows_of(first.path) == {0: {"a": 1.0}, 1: {"a": 3.0}} and rows_of(second.path) == {0: {"a": 2.0}}
    assert wandb.init(name="base", resume=True, **given).resumed
    assert not wandb.init(id="new", resume="allow", **given).resumed
    free = wandb.init(name="lr=0.1 / wide", **given)
    wandb.finish()
    assert not wandb.init(name="lr=0.1 / wide", resume="auto", **given).resumed
    wandb.init(name="tags", tags=[str(number) for number in range(200)], **given)
    wandb.log({"a": 1})
    assert "tags or notes are not recorded" in capsys.readouterr().err
    assert "lr=0.1 _ wide" in [path.name.removeprefix("_desc: ") for path in Path(free.path).iterdir()]
    for error, settings in (
        (NotFound, {"id": "absent", "resume": "must"}),
        (Refused, {"id": "base", "resume": "never"}),
        (Refused, {"id": "base", "resume": "allow", "config": {"lr": 0.2}}),
        (UsageError, {"id": "base", "resume": "perhaps"}),
        (UsageError, {"id": "../base", "resume": "allow"}),
    ):
        with pytest.raises(error) as caught:
            wandb.init(**given, **settings)
        messages.check(caught.value)


def test_files_are_copied_and_again_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = wandb.init(dir=tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("early")
    assert wandb.save("sub/*.txt", base_path=".") == [str(Path(run.dir) / "sub" / "a.txt")]
    (Path(run.dir) / "made.txt").write_text("here")
    (tmp_path / "sub" / "a.txt").write_text("late")
    wandb.log({"a": 1}, step=-1)
    wandb.finish(exit_code=1)
    assert (Path(run.path) / "files" / "sub" / "a.txt").read_text() == "late"
    assert roost.open_package(run.path).state == "failed"


def test_a_disabled_run_records_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with wandb.init(dir=tmp_path, config={"lr": 1}) as run:
        wandb.log({"a": 1})
        assert run.config.lr == 1 and wandb.save("*") == []
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_work_is_refused_at_once(tmp_path: Path, messages: Messages) -> None:
    for name in ("agent", "sweep", "use_artifact", "restore"):
        with pytest.raises(Refused) as caught:
            getattr(wandb, name)
        messages.check(caught.value)
    with pytest.raises(ZeroDivisionError), wandb.init(dir=tmp_path, id="one"):
        wandb.log({"a": 1 / 0})
    assert roost.open_package(tmp_path / "runs" / "one").state == "failed"
    wandb._current = None
    with pytest.raises(UsageError) as caught_early:
        wandb.log({"a": 1})
    messages.check(caught_early.value)
