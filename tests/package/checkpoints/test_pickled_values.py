"""Values that only a pickle can hold: round trip, the key, and which pickles are read."""

from __future__ import annotations

import collections
import multiprocessing
import stat
import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from roost.base.errors import CheckpointError
from roost.base.state_tree import Unread
from roost.package.checkpoints import checkpoint, pickled_values
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.pickled_values import Pickles
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.progress import Progress
from tests.messages import Messages

Point = collections.namedtuple("Point", "x y")


class Best:
    """A class of a project."""

    def __init__(self, value: float, weights: torch.Tensor) -> None:
        self.value, self.weights = value, weights


class Part:
    """A part whose state is what it was given."""

    def __init__(self, state: Any = None) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


@pytest.fixture(autouse=True)
def own_config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    pickled_values._warn_once.cache_clear()
    return tmp_path / "config" / "roost"


def saved(folder: Path, state: Any) -> Path:
    """The folder of a checkpoint of this state, saved with pickles."""
    made = Checkpoints(folder, asynchronous=False, pickles=Pickles.OWN)
    return made.save({"dlnest": Part(state)}, Progress(step=3)).wait()


def loaded(folder: Path, pickles: Pickles | None) -> Any:
    part = Part()
    Checkpoints(folder, pickles=pickles).load({"dlnest": part})
    return part.state


STATE = {
    0: torch.arange(3.0),
    "best": Best(0.5, torch.ones(2)),
    "log": collections.defaultdict(list, {"loss": [1.0, torch.tensor(2.0)]}),
    "place": Point(1, 2),
    "sparse": torch.eye(2).to_sparse(),
    "plain": {"a": (1, {2})},
}


def test_what_no_codec_holds_comes_back(tmp_path: Path) -> None:
    path = saved(tmp_path / "c", STATE)
    assert sorted(one.name for one in path.iterdir()) == [
        "MANIFEST.json", "dlnest.json", "dlnest.pickled.pt", "dlnest.safetensors",
    ]  # fmt: skip
    found = loaded(tmp_path / "c", Pickles.OWN)
    assert found["best"].value == 0.5
    assert found["best"].weights.equal(torch.ones(2))
    assert found["log"]["new"] == []  # still a defaultdict
    assert type(found["place"]) is Point
    assert found["sparse"].to_dense().equal(torch.eye(2))
    assert found[0].equal(torch.arange(3.0))
    assert found["plain"] == STATE["plain"]


def test_plain_state_needs_no_pickle(tmp_path: Path, own_config_folder: Path) -> None:
    path = saved(tmp_path / "c", {0: torch.ones(2), "log": {"loss": [1.0]}})
    assert not (path / "dlnest.pickled.pt").exists()
    assert not own_config_folder.exists()


def test_one_object_that_is_saved_twice_is_one_object_again(tmp_path: Path) -> None:
    best = Best(1.0, torch.ones(1))
    saved(tmp_path / "c", {"a": best, "b": [best]})
    found = loaded(tmp_path / "c", Pickles.OWN)
    assert found["a"] is found["b"][0]


def test_a_reader_without_pickles_gets_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "c", STATE)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("unpickled"))
    _, states = checkpoint.read(path)
    assert states["dlnest"]["best"] == Unread(f"{__name__}.Best")
    assert states["dlnest"][0].equal(torch.arange(3.0))
    assert states["dlnest"]["plain"] == STATE["plain"]
    checkpoint.verify(path)


def test_the_key_is_made_once_and_only_for_its_user(tmp_path: Path, own_config_folder: Path) -> None:
    saved(tmp_path / "c", STATE)
    key = own_config_folder / "pickle.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes()
    saved(tmp_path / "d", STATE)
    assert key.read_bytes() == before


def _signed(_: int) -> str | None:
    return pickled_values.signature_of("00")


def test_processes_that_make_the_key_together_have_one(own_config_folder: Path) -> None:
    with multiprocessing.get_context("fork").Pool(8) as pool:
        assert len(set(pool.map(_signed, range(32), chunksize=1))) == 1


def test_the_pickle_of_another_key_needs_trust(
    tmp_path: Path, own_config_folder: Path, messages: Messages
) -> None:
    saved(tmp_path / "c", STATE)
    (own_config_folder / "pickle.key").write_bytes(b"x" * 32)
    with pytest.raises(CheckpointError) as refused:
        loaded(tmp_path / "c", Pickles.OWN)
    messages.check(refused.value)
    assert loaded(tmp_path / "c", Pickles.ALL)["best"].value == 0.5
    assert checkpoint.ids(tmp_path / "c") == [0]  # not taken for damaged


def _rewritten(path: Path, **entry: Any) -> None:
    manifest = checkpoint.read_manifest(path)
    files = {**manifest.files, "dlnest.pickled.pt": entry}
    (path / "MANIFEST.json").unlink()
    checkpoint.write_manifest(path, msgspec.structs.replace(manifest, files=files))


@pytest.mark.parametrize("signature", [None, 7, "", "00" * 32, "ü"])
def test_no_signature_or_a_forged_one_is_refused(tmp_path: Path, signature: object) -> None:
    path = saved(tmp_path / "c", STATE)
    entry = checkpoint.read_manifest(path).files["dlnest.pickled.pt"]
    _rewritten(path, **{**entry, "signature": signature})
    with pytest.raises(CheckpointError, match="--trust"):
        loaded(tmp_path / "c", Pickles.OWN)


def test_another_pickle_under_the_old_signature_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "c", STATE)
    other = saved(tmp_path / "d", {"best": Best(9.0, torch.ones(1))})
    (path / "dlnest.pickled.pt").write_bytes((other / "dlnest.pickled.pt").read_bytes())
    theirs = checkpoint.read_manifest(other).files["dlnest.pickled.pt"]
    ours = checkpoint.read_manifest(path).files["dlnest.pickled.pt"]
    _rewritten(path, **{**theirs, "signature": ours["signature"]})
    with pytest.raises(CheckpointError, match="--trust"):
        loaded(tmp_path / "c", Pickles.OWN)


@pytest.mark.parametrize("damage", ["readable by others", "short", "a folder"])
def test_a_bad_key_signs_nothing_and_opens_nothing(
    tmp_path: Path, own_config_folder: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path / "c", STATE)
    key = own_config_folder / "pickle.key"
    if damage == "readable by others":
        key.chmod(0o644)
    elif damage == "short":
        key.write_bytes(b"short")
    else:
        key.unlink()
        key.mkdir()
    with pytest.raises(CheckpointError, match="--trust"):
        loaded(tmp_path / "c", Pickles.OWN)
    saved(tmp_path / "d", STATE)
    assert "no signature" in capsys.readouterr().out
    assert loaded(tmp_path / "d", Pickles.ALL)["best"].value == 0.5


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    state = {"good": Point(1, 2), "deep": [{"bad": lambda: None}]}
    with pytest.raises(CheckpointError) as refused:
        saved(tmp_path / "c", state)
    assert "'deep.0.bad'" in str(refused.value)
    assert checkpoint.ids(tmp_path / "c") == []
    with pytest.raises(CheckpointError):
        Checkpoints(tmp_path / "c", asynchronous=False).save({"x": Part(state)}, Progress())


def test_a_class_that_is_gone_is_named(tmp_path: Path, messages: Messages) -> None:
    module = types.ModuleType("project_of_the_test")
    exec_source = "class Gone:\n    pass\n"
    code = compile(exec_source, "project_of_the_test.py", "exec")
    sys.modules["project_of_the_test"] = module
    try:
        types.FunctionType(code, module.__dict__)()
        saved(tmp_path / "c", {"x": module.Gone()})
    finally:
        del sys.modules["project_of_the_test"]
    with pytest.raises(CheckpointError) as refused:
        loaded(tmp_path / "c", Pickles.OWN)
    messages.check(refused.value)
    assert checkpoint.ids(tmp_path / "c") == [0]


def test_a_copy_of_the_checkpoint_keeps_its_signature(tmp_path: Path) -> None:
    path = saved(tmp_path / "c", STATE)
    (tmp_path / "d").mkdir()
    checkpoint.copy(path, tmp_path / "d", session=1)
    assert loaded(tmp_path / "d", Pickles.OWN)["best"].value == 0.5


def test_without_a_home_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))  # no folder can be made below it
    saved(tmp_path / "c", STATE)
    assert loaded(tmp_path / "c", Pickles.ALL)["best"].value == 0.5


def test_the_manifest_is_as_before_without_pickles(tmp_path: Path) -> None:
    path = saved(tmp_path / "c", {"x": 1})
    manifest: Manifest = checkpoint.read_manifest(path)
    assert all(set(entry) == {"bytes", "sha256"} for entry in manifest.files.values())
