"""The package as a program uses it."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import roost
from roost.base.errors import CheckpointError, ConfigError, Damaged, NotFound, Refused, UsageError
from roost.package.checkpoints import checkpoint
from tests.messages import Messages
from tests.operations.packages import project
from tests.project.projects import RUNNER
from tests.project.trained import trained


def new(folder: Path, **settings: Any) -> roost.Package:
    return roost.Package.new({"lr": 0.1, **settings}, root=folder, name="one")


def damage(run: roost.Package, id: int, name: str = "state.json") -> None:
    path = checkpoint.checkpoint_folder(run.checkpoints, id) / name
    path.write_bytes(b"?" + path.read_bytes()[1:])


# --- new ------------------------------------------------------------------------------------------------


def test_new_from_a_dict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"lr": torch.tensor(0.5), "data": Path("/d"), 3: (1, 2), "save_root": "out", "deep": {4: None}}
    run = roost.Package.new(given, description="a try")
    assert run.path.parent == tmp_path / "out" and run.state == "new"
    assert run.args == {"lr": 0.5, "data": "/d", "3": [1, 2], "save_root": "out", "deep": {"4": None}}
    assert (run.path / "_desc: a try").is_file()
    assert run.provenance["lr"].endswith("Python") and run.request["kind"] == "python"


def test_new_from_a_file_that_includes(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("lr: 1e-3\ndepth: 2\n")
    (tmp_path / "c.yaml").write_text("include: base.yaml\ndepth: 3\n")
    (tmp_path / "loop.py").write_text("")
    run = roost.Package.new(tmp_path / "c.yaml")
    assert (run.args["lr"], run.args["depth"]) == (1e-3, 3)
    assert sorted(run.manifest["files"]) == ["base.yaml", "c.yaml", "loop.py"]
    assert roost.Package.new(str(tmp_path / "c.yaml"), copy=False).manifest["files"] == {}


def test_new_from_the_config_of_a_project_is_what_run_makes(tmp_path: Path, messages: Messages) -> None:
    run = roost.Package.new(project(tmp_path / "p"))
    assert run.request["kind"] == "train" and (run.path / "Model" / "Runner.py").is_file()
    with pytest.raises(ConfigError, match=r"Model/No\.py") as refused:
        roost.Package.new(project(tmp_path / "q", runner="Model/No.py:Runner"))
    messages.check(refused.value)
    assert not (tmp_path / "q" / "runs").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    names = [new(tmp_path).path.name for _ in range(3)]
    assert names == ["one", "one-2", "one-3"]


@pytest.mark.parametrize(
    ("given", "options", "kind", "message"),
    [
        ({"checkpoint": {"fats": 1}}, {}, ConfigError, "'fast'"),
        ({"model": object()}, {}, ConfigError, "^model: "),
        ({}, {"name": "a/b"}, UsageError, "^name: .*'a/b'"),
        ({}, {"description": "..."}, UsageError, r"'\.\.\.'"),
        ("no.yaml", {}, NotFound, r"no\.yaml"),
    ],
)
def test_what_new_refuses(
    tmp_path: Path,
    given: Any,
    options: dict[str, Any],
    kind: type[Exception],
    message: str,
    messages: Messages,
) -> None:
    with pytest.raises(kind, match=message) as refused:
        roost.Package.new(given, root=tmp_path / "runs", **options)
    messages.check(refused.value)
    assert not (tmp_path / "runs").exists()


# --- save and load --------------------------------------------------------------------------------------


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "tied": [model[0].weight] * 2,
        "history": OrderedDict(a=[1, math.inf]), 3: (None, True),
    }  # fmt: skip
    with new(tmp_path) as run:
        assert run.save(state) == 0
    found = roost.Package.open(run.path).load()
    assert list(found) == list(state) and found[3] == (None, True) and found["history"] == state["history"]
    assert all(torch.equal(found["model"][name], value) for name, value in model.state_dict().items())
    assert found["tied"][0] is found["tied"][1]
    optimizer.load_state_dict(found["optimizer"])
    on_meta = run.load(device="meta")
    assert on_meta["tied"][0].is_meta and on_meta["tied"][0] is on_meta["tied"][1]


def test_steps_count_saves_unless_they_are_given(tmp_path: Path, messages: Messages) -> None:
    with new(tmp_path, checkpoint={"fast": 9}) as run:
        assert [run.save(n) for n in range(2)] == [0, 1]
        run.save("c", step=10, epoch=3)
        run.save("d")
        with pytest.raises(Refused, match=r"11.*5.*set_current") as refused:
            run.save("e", step=5)
        assert refused.value.setting == "step"
        messages.check(refused.value)
    found = checkpoint.read_manifests(run.checkpoints)
    assert [(info.step, info.epoch) for info in found] == [(1, 0), (2, 0), (10, 3), (11, 0)]
    assert [info.parent for info in found] == [None, 0, 1, 2]
    assert [run.load(id) for id in range(4)] == [0, 1, "c", "d"]


def test_the_tracks_keep_what_the_settings_say(tmp_path: Path) -> None:
    best = [{"monitor": "loss", "mode": "min"}]
    settings = {"fast": 1, "slow": 2, "slow_every": 3, "held": 1, "best": best}
    for block in (range(5), range(5, 10)):  # the count goes on in another session
        opened = new(tmp_path, checkpoint=settings) if 0 in block else roost.open_package(tmp_path / "one")
        with opened as run:
            for n in block:
                run.save(n, hold=n == 1, metrics={"loss": torch.tensor(abs(n - 4.0))})
    assert run.derived["ckpt_fast"] == [9] and run.derived["ckpt_slow"] == [6, 9]
    assert run.derived["ckpt_consistent"] == [1] and run.derived["ckpt_best"] == [4]
    assert checkpoint.ids(run.checkpoints) == [1, 4, 6, 8, 9]
    assert run.records().series["loss"] == (list(range(1, 11)), [4, 3, 2, 1, 0, 1, 2, 3, 4, 5])


def test_nothing_to_load(tmp_path: Path, messages: Messages) -> None:
    run = new(tmp_path)
    assert run.current is None
    with pytest.raises(NotFound) as refused:
        run.load()
    messages.check(refused.value)
    with pytest.raises(NotFound, match="3") as refused:
        run.load(3)
    messages.check(refused.value)
    with pytest.raises(NotFound, match="nowhere") as refused:
        roost.open_package(tmp_path / "nowhere")
    messages.check(refused.value)


def test_what_cannot_be_saved_leaves_what_stands(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.save(1)
        with pytest.raises(CheckpointError, match=r"builtins\.object at 'a'"):
            run.save({"a": object()})
        assert run.save(2) == 1
    assert run.load() == 2


def test_a_damaged_newest_one(tmp_path: Path, messages: Messages) -> None:
    """Whoever reads passes it over and leaves it; whoever writes sets it aside and goes on from the other."""
    with new(tmp_path, checkpoint={"fast": 9}) as run:
        for n in range(3):
            run.save(n)
    damage(run, 2)
    with pytest.warns(UserWarning, match=r"state_2\.ckpt: ") as said:
        assert run.load() == 1
    messages.check(said[0].message)
    assert Path(said[0].filename) == Path(__file__)
    assert checkpoint.ids(run.checkpoints) == [0, 1, 2]
    with pytest.raises(Damaged, match=r"state\.json") as refused:
        run.load(2)
    messages.check(refused.value)
    with run, pytest.warns(UserWarning, match=r"state_2\.ckpt\.corrupt") as said:
        assert run.save("new") == 3
    messages.check(said[0].message)
    assert Path(said[0].filename) == Path(__file__)
    assert checkpoint.read_manifests(run.checkpoints)[-1].line == [(0, 1), (3, 3)] and run.load() == "new"


# --- the current one ------------------------------------------------------------------------------------


def test_its_text_names_what_it_is(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        assert repr(run) == f"Package({str(run.path)!r}: new, 0 checkpoints)"
        run.save(1)
        assert repr(run) == f"Package({str(run.path)!r}: running, 1 checkpoint)"
    opened = roost.open_package(run.path)
    assert repr(opened) == f"Package({str(run.path)!r}: succeeded, 1 checkpoint)"
    run.path.rename(tmp_path / "moved")
    assert str(run.path) in repr(opened), "a package that is gone has a text, too"


def test_what_came_after_the_current_one_is_unreachable(tmp_path: Path) -> None:
    best = {"fast": 9, "best": [{"monitor": "loss", "mode": "min"}]}
    with new(tmp_path, checkpoint=best) as run:
        for n in range(4):
            run.save(n, metrics={"loss": 9.0 - n})
    with run:
        run.set_current(1)  # before the first write
    assert run.current == 1 and run.load() == 1 and run.load(3) == 3
    assert run.derived["ckpt_best"] == [1] and run.derived["ckpt_fast"] == [0, 1], "of the new lineage"
    with run:
        assert run.current == 1, "it lasts"
        assert run.save("other", metrics={"loss": 8.5}) == 4
        run.set_current(0)  # in the middle
        assert run.current == 0 and run.load() == 0 and run.derived["ckpt_best"] == [0]
        assert run.save("third", metrics={"loss": 8.7}) == 5
    assert run.current == 5 and checkpoint.read_manifests(run.checkpoints)[-1].line == [(0, 0), (5, 5)]
    assert run.derived["ckpt_best"] == [5] and checkpoint.ids(run.checkpoints) == [0, 1, 2, 3, 4, 5]
    assert run.records().series["loss"] == ([1, 2], [9.0, 8.7]), "the rows of what was left are hidden"
    assert [(one.state, one.checkpoint) for one in run.sessions()] == [
        ("succeeded", None), ("succeeded", 1), ("stopped", None), ("succeeded", 0)
    ]  # fmt: skip


def test_what_cannot_become_current(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.save(1)
        run.save(2)
        damage(run, 0)
        for id, kind in ((7, NotFound), (0, CheckpointError)):
            with pytest.raises(kind):
                run.set_current(id)
        assert run.current == 1 and len(run.sessions()) == 1


# --- sessions -------------------------------------------------------------------------------------------


def test_nothing_is_written_outside_of_with_nor_before_the_first_write(
    tmp_path: Path, messages: Messages
) -> None:
    run = new(tmp_path)
    for write in (lambda: run.save(1), lambda: run.set_current(0)):
        with pytest.raises(Refused, match=r"with roost\.open_package\(path\) as run") as refused:
            write()
        messages.check(refused.value)
    with run, roost.open_package(run.path) as other:
        assert run.current is None and run.state == "new"
        with pytest.raises(Refused) as refused, run:
            pass
        messages.check(refused.value)
        run.save(1)
        assert run.state == "running"
        assert other.load() == 1, "others read"
        with pytest.raises(Refused, match="session 1"):
            other.save(2)
    (session,) = run.sessions()
    assert (
        session.state == "succeeded" and session.record is not None and session.record["reason"] == "closed"
    )
    with run:
        run.save(2)
        run.set_current(0)
        run.save(3)
    assert [one.state for one in run.sessions()] == ["succeeded", "stopped", "succeeded"]


@pytest.mark.parametrize(
    ("error", "state", "said"),
    [
        (ValueError("bad luck"), "failed", "ValueError: bad luck"),
        (SystemExit(3), "failed", "SystemExit: 3"),
        (SystemExit(0), "stopped", None),
        (KeyboardInterrupt(), "stopped", None),
    ],
)
def test_how_the_block_is_left_is_recorded(
    tmp_path: Path, error: BaseException, state: str, said: str | None
) -> None:
    with pytest.raises(type(error)), new(tmp_path) as run:
        run.save(1)
        raise error
    (session,) = run.sessions()
    assert (session.state, session.error) == (state, said)


def test_a_description_may_be_added_at_any_time(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.save(1)
        roost.open_package(run.path).describe("looks good")
    assert (run.path / "_desc: looks good").is_file()


def test_reading_needs_no_torch(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.save(1, metrics={"loss": 1.0})
    program = (
        "import roost, sys; run = roost.open_package(sys.argv[1])\n"
        "assert run.current == 0 and run.records().last() == {'loss': 1.0}; sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(run.path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- packages of a training -----------------------------------------------------------------------------


def test_the_model_of_a_training(tmp_path: Path) -> None:
    """Two packages with modules of the same names, one after the other, and nothing is left of them."""
    packages = [
        roost.open_package(trained(tmp_path / "a", width=3).path),
        roost.open_package(
            trained(tmp_path / "b", width=4, runner=RUNNER.replace("nn.Dropout", "nn.AlphaDropout")).path
        ),
    ]
    before, names = list(sys.path), set(sys.modules)
    models = [package.load_model(device="cpu") for package in packages]
    new = {name.partition(".")[0] for name in set(sys.modules) - names} - {"roost"}
    new_names = {name.rpartition("_")[0] for name in new}
    assert sys.path == before and new_names == {"roost_package"}
    assert [model.net[0].out_features for model in models] == [3, 4]
    assert [type(model.net[1]).__name__ for model in models] == ["Dropout", "AlphaDropout"]
    for model, package in zip(models, packages, strict=True):
        expected = package.load()["model"]["state"]
        assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
        assert not model.training and torch.isfinite(model.net(torch.ones(2, 4))).all()
    first = packages[0].load_model(checkpoint=0, device="cpu", info={"classes": 5})
    assert first.info == {"classes": 5}
    assert torch.equal(first.net[0].weight, packages[0].load(0)["model"]["state"]["net.0.weight"])


def test_the_model_when_the_newest_is_damaged(tmp_path: Path, messages: Messages) -> None:
    run = roost.open_package(trained(tmp_path).path)
    damage(run, 2, "model.json")
    with pytest.warns(UserWarning, match=r"state_2\.ckpt") as said:
        run.load_model(device="cpu")
    messages.check(said[0].message)
    assert Path(said[0].filename) == Path(__file__)
    damage(run, 1, "optimizers.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.load_model(checkpoint=1, device="cpu") is not None, "only the weights are read"


def test_the_state_of_a_training_can_be_changed_and_is_then_inexact(
    tmp_path: Path, messages: Messages
) -> None:
    with roost.open_package(trained(tmp_path).path) as run:
        parts = run.load()
        parts["model"]["state"]["net.0.weight"].zero_()
        with pytest.raises(Refused, match=r"checkpoint 2 .*\['model'\]") as refused:
            run.save({"model": parts["model"]})
        messages.check(refused.value)
        with pytest.raises(Refused, match=r"6.*7") as refused:
            run.save(parts, step=7)
        messages.check(refused.value)
        assert run.save(parts) == 3
    assert run.load_model(device="cpu").net[0].weight.abs().sum() == 0
    newest = checkpoint.read_manifests(run.checkpoints)[-1]
    assert (newest.step, newest.parent, len(newest.inexact)) == (6, 2, 1)
    assert "Python" in newest.inexact[0] and "checkpoint 2" in newest.inexact[0]
    assert run.load()["trainer"]["inexact"] == run.derived["inexact"] == newest.inexact


def test_the_newest_by_the_id_of_dlnest_and_a_tuning_file(tmp_path: Path) -> None:
    config, tuning = tmp_path / "config.yaml", tmp_path / "tuning.yaml"
    config.write_text("lr: 0.1\nwidth: 8\ncheckpoint: {fast: 3}\n")
    tuning.write_text("lr: 0.5\n")
    with roost.Package.new(config, tuning=tuning, root=tmp_path / "runs", name="one") as run:
        for step in range(3):
            run.save({"step": step})
        assert run.load(-1) == run.load() == {"step": 2}
        run.set_current(1)
        assert run.load(-1) == {"step": 1} and run.derived["ckpt_fast"] == [0, 1]
    assert run.settings["lr"] == 0.5 and run.settings["width"] == 8
    with pytest.raises(UsageError, match="tuning"):
        roost.Package.new({"lr": 0.1}, tuning=tuning, root=tmp_path / "runs")
