"""`roost.init`: a loop of the user's own is recorded, killed, and continues bit for bit."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import roost
from roost.base.errors import (
    CheckpointError,
    ConfigError,
    ContractError,
    Refused,
    RoostError,
    UsageError,
)
from roost.package import live_progress
from tests.messages import Messages

EPOCHS, KILLS = 3, 5


def parts() -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    inputs = torch.arange(96.0).reshape(24, 4) / 96
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=5, shuffle=True)
    return model, torch.optim.Adam(model.parameters(), lr=1e-2), loader


def train(root: Path, *, pause: float = 0.0) -> None:
    """A loop as the documentation shows it; every second step is saved."""
    run = roost.init({"lr": 1e-2, "seed": 3, "checkpoint": {"fast": 2}}, name="one", root=root)
    model, optimizer, loader = parts()
    batches = run.resumable(loader)
    run.load_checkpoint(model=model, optimizer=optimizer)
    for _ in range(batches.epoch, EPOCHS):
        for inputs, targets in batches:
            noise = 0.01 * (random.random() + float(np.random.rand()))
            loss = ((model(inputs) - targets) ** 2).mean() + noise * model(inputs).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log({"train/loss": loss})
            time.sleep(pause)
            if run.step % 2 == 0:
                run.save_checkpoint(model=model, optimizer=optimizer)
    run.save_checkpoint(model=model, optimizer=optimizer)
    run.finish()


def forked(work: Callable[[], None]) -> int:
    """Starts ``work`` in a child and returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001  - the child must not go on with the tests
        traceback.print_exc()
    finally:
        os._exit(1)


def end_of(root: Path) -> tuple[Any, Any]:
    """Everything that must be equal: the last state, and the rows without their times."""
    package = roost.open_package(root / "one")
    return package.load(), [(row["step"], row["epoch"], row["train/loss"]) for row in package.rows()]


def is_equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor | np.ndarray):
        return np.array_equal(np.asarray(a), np.asarray(b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(is_equal, a, b))
    return bool(a == b)


def kill_until_done(root: Path, kills: int, seed: int, *, seconds: float = 0.12) -> int:
    """Trains in children that are killed within ``seconds``, then to the end; returns the number of kills."""
    draw, killed = random.Random(seed), 0
    for _ in range(kills):
        pid = forked(lambda: train(root, pause=0.004))
        time.sleep(draw.uniform(0.0, seconds))
        os.kill(pid, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert os.waitstatus_to_exitcode(os.waitpid(forked(lambda: train(root)), 0)[1]) == 0
    return killed


def test_a_loop_killed_at_random_ends_bit_for_bit_as_one_that_was_not(tmp_path: Path) -> None:
    train(tmp_path / "whole")
    kill_until_done(tmp_path / "killed", KILLS, seed=0)
    whole, killed = end_of(tmp_path / "whole"), end_of(tmp_path / "killed")
    assert is_equal(whole, killed)
    assert [step for step, _, _ in whole[1]] == list(range(1, EPOCHS * 5 + 1))
    assert roost.open_package(tmp_path / "killed" / "one").state == "succeeded"


@pytest.mark.soak
def test_fifty_kills_of_a_loop(tmp_path: Path) -> None:
    train(tmp_path / "whole")
    whole, killed = end_of(tmp_path / "whole"), 0
    for number in itertools.count():  # a quick machine ends some runs before they are killed
        killed += kill_until_done(tmp_path / str(number), 8, seed=number, seconds=0.3)
        assert is_equal(whole, end_of(tmp_path / str(number)))
        if killed >= 50:
            return


def test_the_same_call_after_the_end_trains_nothing_more(tmp_path: Path) -> None:
    train(tmp_path)
    before = end_of(tmp_path)
    train(tmp_path)
    assert is_equal(before, end_of(tmp_path))


def test_without_a_checkpoint_the_first_row_of_a_session_replaces_those_from_its_step_on(
    tmp_path: Path,
) -> None:
    for steps in ([1, 2, 3, 4], [3, 4, 5], [9], [8]):
        with roost.init(name="one", root=tmp_path) as run:
            for step in steps:
                run.log({"loss": len(steps)}, step=step)
    found = [(row["step"], row["loss"]) for row in run.package.rows()]
    assert found == [(1, 4), (2, 4), (3, 3), (4, 3), (5, 3), (8, 1)]
    with roost.init(name="one", root=tmp_path) as run:
        run.log({"loss": 0})
    assert [row["step"] for row in run.package.rows()] == [1], "a loop that begins again"


def test_the_end_of_a_run_shows_the_step_of_its_last_row(tmp_path: Path) -> None:
    with roost.init(name="one", root=tmp_path) as run:
        for _ in range(20):
            run.log({"loss": 1})
    seen = live_progress.read(run.path / "progress")
    assert seen is not None and (seen.step, seen.phase) == (20, "ended")


def test_media_are_stored_by_step(tmp_path: Path, messages: Messages) -> None:
    with roost.init(name="one", root=tmp_path) as run:
        run.log({"loss": 1}, step=4)
        run.log_media({"note": "a text", "in/a": roost.Media("histogram", [1, 2])})
        run.log_media({"note": "earlier"}, step=2)
        for wrong in ({"note": 3}, {".hidden": "a"}, ["a"]):
            with pytest.raises(ContractError) as caught:
                run.log_media(wrong)  # type: ignore[arg-type]
            messages.check(caught.value)
        with pytest.raises(Refused):
            run.log_media({"note": "a"}, step=-1)
    found = sorted(path.relative_to(run.path / "media").as_posix() for path in run.path.glob("media/*/*"))
    assert found == ["2/note.txt", "4/in_a.json", "4/note.txt"]


PROGRAM = """
import sys, torch, roost
run = roost.init({"seed": 1}, name="one", root=sys.argv[1])
model = torch.nn.Linear(1, 1)
print(run.load_checkpoint(model=model))
run.log({"loss": 1.5})
run.save_checkpoint(model=model)
if sys.argv[2] == "fails": raise ValueError("no")
"""


def test_a_program_without_finish_has_stopped_and_one_that_raises_has_failed(tmp_path: Path) -> None:
    for end, code, state, step in (("stops", 0, "stopped", 0), ("fails", 1, "failed", 1)):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path), end], capture_output=True, text=True, check=False
        )
        package = roost.open_package(tmp_path / "one")
        assert (done.returncode, package.state, done.stdout) == (code, state, f"{step}\n"), done.stderr
    assert package.sessions()[-1].record["error"].endswith("no")
    assert [row["step"] for row in package.rows()] == [1, 2]


def test_a_block_that_raises_has_failed_and_its_lock_is_free(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), roost.init(name="one", root=tmp_path) as run:
        run.log({"loss": 1 / 0})
    assert roost.open_package(run.path).state == "failed"
    with roost.init(name="one", root=tmp_path) as again:
        again.log({"loss": 1}, step=7)
    assert again.package.state == "succeeded" and again.package.metrics()["loss"].steps.tolist() == [7]
    assert "step 7" in repr(again) and "<table" in again._repr_html_()


def saved(root: Path) -> None:
    with roost.init({"lr": 1}, name="one", root=root) as run:
        run.log({"loss": 1})
        run.save_checkpoint(model=nn.Linear(1, 1))


def _other_settings(root: Path) -> None:
    roost.init({"lr": 2}, name="one", root=root)


def _in_use(root: Path) -> None:
    with roost.init({"lr": 1}, name="one", root=root):
        roost.init({"lr": 1}, name="one", root=root)


def _not_loaded(root: Path) -> None:
    with roost.init({"lr": 1}, name="one", root=root) as run:
        run.log({"loss": 2})


def _other_objects(root: Path) -> None:
    with roost.init({"lr": 1}, name="one", root=root) as run:
        run.load_checkpoint(net=nn.Linear(1, 1))


def _no_state_dict(root: Path) -> None:
    with roost.init(root=root) as run:
        run.save_checkpoint(model=1)


def _no_object(root: Path) -> None:
    with roost.init(root=root) as run:
        run.save_checkpoint()


def _step_goes_back(root: Path) -> None:
    with roost.init(root=root) as run:
        run.log({"loss": 1}, step=5)
        run.log({"loss": 1}, step=4)


def _step_is_a_text(root: Path) -> None:
    with roost.init(root=root) as run:
        run.log({"loss": 1}, step="5")  # type: ignore[arg-type]


def _ended(root: Path) -> None:
    run = roost.init(root=root)
    run.finish()
    run.finish()
    run.log({"loss": 1})


def _no_number(root: Path) -> None:
    with roost.init(root=root) as run:
        run.log({"loss": "low"})


def _no_mapping(root: Path) -> None:
    with roost.init(root=root) as run:
        run.log([1])  # type: ignore[arg-type]


def _arguments_of_argparse(root: Path) -> None:
    roost.init(Namespace(lr=1), root=root)  # type: ignore[arg-type]


def _seed_is_a_text(root: Path) -> None:
    roost.init({"seed": "0"}, root=root)


def _foreign_folder(root: Path) -> None:
    (root / "mine").mkdir()
    roost.init(name="mine", root=root)


def _other_state(root: Path) -> None:
    with roost.Package.new({}, root=root, name="hand") as package:
        package.save({"weights": 1})
    with roost.init(name="hand", root=root) as run:
        run.load_checkpoint(model=nn.Linear(1, 1))


def _not_json(root: Path) -> None:
    roost.init({"model": object()}, root=root)


def _name_with_slash(root: Path) -> None:
    roost.init(name="a/b", root=root)


@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (_other_settings, Refused),
        (_in_use, Refused),
        (_not_loaded, Refused),
        (_other_objects, CheckpointError),
        (_no_state_dict, UsageError),
        (_no_object, UsageError),
        (_step_goes_back, Refused),
        (_step_is_a_text, Refused),
        (_ended, Refused),
        (_no_number, Refused),
        (_no_mapping, UsageError),
        (_arguments_of_argparse, UsageError),
        (_seed_is_a_text, UsageError),
        (_foreign_folder, Refused),
        (_other_state, CheckpointError),
        (_not_json, ConfigError),
        (_name_with_slash, UsageError),
    ],
)
def test_what_is_refused(
    misuse: Callable[[Path], None], error: type[RoostError], tmp_path: Path, messages: Messages
) -> None:
    saved(tmp_path)
    before = roost.open_package(tmp_path / "one").load()
    with pytest.raises(error) as refused:
        misuse(tmp_path)
    messages.check(refused.value)
    assert is_equal(before, roost.open_package(tmp_path / "one").load())


def test_threads_log_at_once(tmp_path: Path) -> None:
    def log() -> None:
        for value in range(200):
            run.log({"loss": value})

    with roost.init(name="one", root=tmp_path) as run, ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(log) for _ in range(4)]:
            done.result()
    assert [row["step"] for row in run.package.rows()] == list(range(1, 801))


def test_a_forked_process_neither_writes_nor_ends_the_run_nor_waits_for_a_thread(tmp_path: Path) -> None:
    holds, may_end = Event(), Event()

    def hold() -> None:
        with run._lock:
            holds.set()
            may_end.wait()

    def child() -> None:
        with pytest.raises(Refused, match="was forked"):
            run.log({"loss": 2})
        run._end_with_program()

    with roost.init(name="one", root=tmp_path) as run:
        run.log({"loss": 1})
        logger = Thread(target=hold)
        logger.start()
        holds.wait()
        pid = forked(child)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        may_end.set()
        logger.join()
        run.log({"loss": 3})
    assert run.package.metrics()["loss"].values.tolist() == [1, 3]


def test_a_state_that_does_not_fit_is_named_by_its_object(tmp_path: Path) -> None:
    saved(tmp_path)
    with pytest.raises(RuntimeError) as refused, roost.init({"lr": 1}, name="one", root=tmp_path) as run:
        run.load_checkpoint(model=nn.Linear(2, 1))
    assert "while loading 'model' of checkpoint 0" in refused.value.__notes__[0]


def test_settings_that_json_changes_are_the_same_in_the_next_call(tmp_path: Path) -> None:
    settings = {"betas": (0.9, (0.999, 1)), "root": Path("data"), "ids": {1: {2}}, "low": np.float32(0.5)}
    for _ in range(2):
        roost.init(settings, name="one", root=tmp_path).finish()
    assert roost.open_package(tmp_path / "one").args["betas"] == [0.9, [0.999, 1]]


def test_without_a_name_each_call_makes_a_package(tmp_path: Path) -> None:
    paths = []
    for _ in range(2):
        with roost.init(root=tmp_path) as run:
            paths.append(run.path)
    assert paths[0] != paths[1]


def test_metrics_of_a_checkpoint_choose_the_best(tmp_path: Path) -> None:
    config = {"checkpoint": {"best": [{"monitor": "valid/loss", "mode": "min"}], "fast": 1}}
    with roost.init(config, name="one", root=tmp_path) as run:
        for loss in (0.5, 0.2, 0.9):
            run.log({"train/loss": loss})
            run.save_checkpoint(metrics={"valid/loss": loss}, model=nn.Linear(1, 1))
    assert run.package.summary.best == 0.2
    assert sorted(run.package.kept_ids()) == [1, 2]
