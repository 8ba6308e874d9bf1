"""A checkpoint is whole, or is recognised as damaged: every byte is verified."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from roost.base import durable, state_tree
from roost.base.errors import CheckpointError, Damaged, NotFound
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from tests.messages import Messages

RANDOM = np.random.default_rng(0)
TREES: dict[str, Any] = {
    "model": {"weight": RANDOM.random((100, 50), dtype=np.float32), "bias": np.zeros(50, np.float32)},
    "optimizer": {"state": {0: {"step": 3, "moment": RANDOM.random((100, 50))}}, "lr": 1e-3},
    "progress": {"step": 7, "epoch": 1, "pending": None, "best": math.inf},
}
FLIPS, PAGE = 500, 4096


@pytest.fixture(autouse=True)
def no_fault_left() -> Iterator[None]:
    yield
    durable.fault = None


def info(id: int = 0, **more: Any) -> Manifest:
    return Manifest(id=id, step=id * 10, epoch=1, batch=2, line=[(0, id)], **more)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("Checkpoints")
    checkpoint.write(folder, TREES, info(4, metrics={"valid/loss": 0.5}))
    return checkpoint.checkpoint_folder(folder, 4)


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / good.name))


def is_same(states: dict[str, Any]) -> bool:
    arrays = [("model", "weight"), ("model", "bias")]
    return repr(states) == repr(TREES) and all(
        np.array_equal(states[name][key], TREES[name][key]) for name, key in arrays
    )


def loads(path: Path) -> bool:
    """Whether it loads, and then surely right; an error that does not tell of damage fails the test."""
    try:
        checkpoint.verify(path)
        _, states = checkpoint.read(path, to="numpy")
    except Damaged:
        return False
    assert is_same(states), "loaded in silence, and wrong"
    return True


# --- what is good -----------------------------------------------------------------------------------------


def test_what_was_written_is_read(good: Path) -> None:
    found, states = checkpoint.read(good, to="numpy")
    assert is_same(states)
    assert (found.id, found.step, found.metrics) == (4, 40, {"valid/loss": 0.5})
    assert checkpoint.verify(good) == checkpoint.read_manifest(good) == found
    assert sorted(found.files) == [
        "model.json", "model.safetensors", "optimizer.json", "optimizer.safetensors", "progress.json",
    ]  # fmt: skip
    assert sorted(path.name for path in good.iterdir()) == ["MANIFEST.json", *sorted(found.files)]


def test_one_part_is_read_without_the_others(copy: Path, messages: Messages) -> None:
    (copy / "model.safetensors").write_bytes(b"")
    _, states = checkpoint.read(copy, only=["progress"], to="numpy")
    assert states == {"progress": TREES["progress"]}
    with pytest.raises(CheckpointError) as refused:
        checkpoint.read(copy, only=["rng"], to="numpy")
    messages.check(refused.value)
    assert "'rng'" in str(refused.value)


def test_tensors_that_were_read_are_a_programs_own(tmp_path: Path) -> None:
    """Large ones are views of what was read: never of the file, and never of one another."""
    trees = {"model": {"w": torch.ones(512, 256), "v": torch.ones(256, 256), "n": torch.tensor(3)}}
    checkpoint.write(tmp_path, trees, info())
    path = checkpoint.checkpoint_folder(tmp_path, 0)
    model = checkpoint.read(path)[1]["model"]
    assert all(one.data_ptr() % 64 == 0 for one in model.values())
    assert model["w"].data_ptr() - model["v"].data_ptr() == model["v"].nbytes, "no copy: as in the file"
    before = checkpoint.manifest_digest(path)
    for one in model.values():
        one.zero_()
    again = checkpoint.read(path)[1]["model"]
    assert all(again[name].equal(one) for name, one in trees["model"].items())
    model["w"].fill_(5)
    assert not model["v"].any() and checkpoint.manifest_digest(path) == before
    os.truncate(path / "model.safetensors", 0)
    assert all(again[name].equal(one) for name, one in trees["model"].items())


def test_a_file_whose_tensors_lie_anywhere_is_read(tmp_path: Path) -> None:
    """As roost wrote them once: the header filled up to 8 bytes, the widest first."""
    skeleton, leaves = state_tree.pack({"n": torch.tensor(3), "w": torch.randn(512, 256)})
    spans = {"n": ("I64", [], 0, 8), "w": ("F32", [512, 256], 8, 8 + (1 << 19))}
    header = {name: {"dtype": t, "shape": s, "data_offsets": [a, b]} for name, (t, s, a, b) in spans.items()}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(bytes(leaves[name].data) for name in spans)
    files = {
        "model.json": json.dumps(skeleton).encode(),
        "model.safetensors": len(text).to_bytes(8, "little") + text + body,
    }
    entries = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
    }
    with checkpoint.staged_folder(checkpoint.checkpoint_folder(tmp_path, 0)) as staging:
        for name, data in files.items():
            (staging / name).write_bytes(data)
        checkpoint.write_manifest(staging, info(files=entries))
    model = checkpoint.read(checkpoint.checkpoint_folder(tmp_path, 0))[1]["model"]
    assert model["n"] == 3 and model["w"].numpy().tobytes() == bytes(leaves["w"].data)


def test_the_manifest_is_readable_json_and_says_what_was_asked(good: Path) -> None:
    body = json.loads((good / "MANIFEST.json").read_bytes())
    assert body["format"] == 1 and body["files"]["model.safetensors"]["bytes"] > 20_000
    digest = hashlib.sha256((good / "progress.json").read_bytes()).hexdigest()
    assert body["files"]["progress.json"]["sha256"] == digest


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_no_number_is_read_again(tmp_path: Path, value: float) -> None:
    checkpoint.write(tmp_path, {}, info(0, metrics={"valid/loss": value, "valid/accuracy": 0.5}))
    found = checkpoint.verify(checkpoint.checkpoint_folder(tmp_path, 0))
    assert repr(found.metrics["valid/loss"]) == repr(value) and found.metrics["valid/accuracy"] == 0.5
    assert found.nonfinite == {}


def test_ids(tmp_path: Path) -> None:
    assert checkpoint.ids(tmp_path) == [] and checkpoint.next_id(tmp_path) == 0
    for name in (
        "state_2.ckpt",
        "state_10.ckpt",
        "state_11.ckpt.corrupt",
        "state_x.ckpt",
        ".state_99.ckpt.tmp-1",
    ):
        (tmp_path / name).mkdir()
    assert checkpoint.ids(tmp_path) == [2, 10]
    assert checkpoint.next_id(tmp_path) == 12  # an id set aside is not given twice
    (tmp_path / "state_30.ckpt").write_bytes(b"of DLNest")
    assert checkpoint.ids(tmp_path) == [2, 10] and checkpoint.next_id(tmp_path) == 31


def test_a_line_is_kept_in_ranges() -> None:
    first = info(0)
    assert checkpoint.lineage_after(None, 0) == [(0, 0)]
    assert checkpoint.lineage_after(first, 1) == [(0, 1)]
    branched = msgspec.structs.replace(info(5), line=checkpoint.lineage_after(first, 5))
    assert branched.line == [(0, 0), (5, 5)]
    assert checkpoint.lineage_after(branched, 6) == [(0, 0), (5, 6)]
    assert checkpoint.lineage_after(branched, 8) == [(0, 0), (5, 5), (8, 8)]


def test_an_existing_id_is_never_overwritten(copy: Path) -> None:
    before = (copy / "MANIFEST.json").read_bytes()
    with pytest.raises(FileExistsError):
        checkpoint.write(copy.parent, {}, info(4))
    assert (copy / "MANIFEST.json").read_bytes() == before
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


def test_a_state_that_cannot_be_saved_leaves_nothing(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(CheckpointError) as refused:
        checkpoint.write(tmp_path, {"good": TREES["model"], "bad": {"a": {"file": print}}}, info())
    messages.check(refused.value)
    assert "'a.file'" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


# --- what is damaged --------------------------------------------------------------------------------------


def test_no_flipped_bit_loads_in_silence(copy: Path) -> None:
    files = sorted(copy.iterdir())
    contents = {file: file.read_bytes() for file in files}
    choose = random.Random(1)
    silent = 0
    for number in range(FLIPS):
        # Every file in turn, the small ones as often as the large ones.
        file = files[number % len(files)]
        place = choose.randrange(len(contents[file]))
        damaged = bytearray(contents[file])
        damaged[place] ^= 1 << choose.randrange(8)
        file.write_bytes(damaged)
        silent += loads(copy)
        file.write_bytes(contents[file])
    assert silent == 0
    assert loads(copy)


def test_no_zeroed_page_loads_in_silence(copy: Path) -> None:
    pages = silent = 0
    for file in sorted(copy.iterdir()):
        content = file.read_bytes()
        for start in range(0, len(content), PAGE):
            size = min(PAGE, len(content) - start)
            damaged = content[:start] + bytes(size) + content[start + size :]
            assert damaged != content
            file.write_bytes(damaged)
            pages += 1
            silent += loads(copy)
        file.write_bytes(content)
    assert silent == 0 and pages > 15
    assert loads(copy)


def test_no_truncation_or_addition_loads_in_silence(copy: Path) -> None:
    for file in sorted(copy.iterdir()):
        content = file.read_bytes()
        for part in range(50):
            file.write_bytes(content[: len(content) * part // 50])
            assert not loads(copy)
        for more in (b"\n", b"\0", b"0" * PAGE):
            file.write_bytes(content + more)
            assert not loads(copy)
        file.write_bytes(content)
    assert loads(copy)


def test_no_missing_or_swapped_file_loads_in_silence(copy: Path) -> None:
    files = sorted(copy.iterdir())
    for file in files:
        aside = file.rename(copy.parent / "aside")
        assert not loads(copy)
        file.mkdir()
        assert not loads(copy)
        file.rmdir()
        aside.rename(file)
    one, two = copy / "model.json", copy / "optimizer.json"
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    assert not loads(copy)


def test_the_error_names_checkpoint_file_and_what_is_wrong(copy: Path, messages: Messages) -> None:
    file = copy / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(Damaged) as damaged:
        checkpoint.read(copy)
    assert all(fact in str(damaged.value) for fact in ("state_4.ckpt", "model.safetensors"))
    assert f" {len(content) - 1} " in str(damaged.value)
    file.write_bytes(content[:-1] + b"\1")
    with pytest.raises(CheckpointError) as refused:
        checkpoint.verify(copy)
    messages.check(refused.value)
    assert "model.safetensors" in str(refused.value)
    file.unlink()
    with pytest.raises(CheckpointError) as refused:
        checkpoint.verify(copy)
    messages.check(refused.value)
    assert "model.safetensors" in str(refused.value)
    (copy / "MANIFEST.json").unlink()
    with pytest.raises(CheckpointError) as refused:
        checkpoint.read_manifest(copy)
    messages.check(refused.value)
    assert all(fact in str(refused.value) for fact in ("state_4.ckpt", "MANIFEST.json"))


def test_what_is_not_there_or_no_folder(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as missing:
        checkpoint.read(tmp_path / "state_0.ckpt")
    messages.check(missing.value)
    (tmp_path / "state_1.ckpt").touch()
    with pytest.raises(CheckpointError) as refused:
        checkpoint.read(tmp_path / "state_1.ckpt")
    messages.check(refused.value)
    assert checkpoint.read_manifests(tmp_path) == []


def test_damaged_ones_are_passed_over_in_a_list_and_set_aside_under_free_names(copy: Path) -> None:
    checkpoint.write(copy.parent, {}, info(5))
    (copy / "MANIFEST.json").write_bytes(b"{}")
    assert [found.id for found in checkpoint.read_manifests(copy.parent)] == [5]
    assert checkpoint.set_aside(copy).name == "state_4.ckpt.corrupt"
    copy.mkdir()
    assert checkpoint.set_aside(copy).name == "state_4.ckpt.corrupt-2"
    assert checkpoint.ids(copy.parent) == [5]


# --- made on purpose, with right digests ------------------------------------------------------------------


def forged(folder: Path, files: dict[str, bytes], body: dict[str, Any] | bytes | None = None) -> Path:
    """A checkpoint folder with right digests and content that roost did not write."""
    folder.mkdir()
    entries = {}
    for name, data in files.items():
        (folder / name).write_bytes(data)
        entries[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    if not isinstance(body, bytes):
        head = {"id": 0, "step": 0, "epoch": 0, "batch": 0, "files": entries}
        body = checkpoint._sealed({**head, **(body or {})})
    (folder / "MANIFEST.json").write_bytes(body)
    return folder


@pytest.mark.parametrize(
    "files",
    [
        {"a.json": b"{"}, {"a.json": b""}, {"a.json": b"\xff"}, {"a.json": b"[" * 100_000},
        {"a.json": b'{"a":' * 5_000 + b"1" + b"}" * 5_000}, {"a.json": b"1" * 10_000},
        {"a.json": b'{"$": "tensor", "leaf": "x", "dtype": "float32", "shape": [1]}'},
        {"a.json": b"1", "a.safetensors": b"\xff" * 50}, {"a.json": b"1", "a.safetensors": b""},
    ],
)  # fmt: skip
def test_a_forged_state_is_an_error(tmp_path: Path, files: dict[str, bytes]) -> None:
    with pytest.raises(CheckpointError, match=r"state_0\.ckpt: ") as caught:
        checkpoint.read(forged(tmp_path / "state_0.ckpt", files), to="numpy")
    assert not isinstance(caught.value, Damaged), "its digests are right"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"3", b"[" * 100_000, b'{"id": 1' + b"0" * 30 + b"}", b"{}", b'{"sha256": null}',
        {"id": "x"}, {"line": [[1]]}, {"format": 2}, {"metrics": {"a": "b"}},
        {"nonfinite": {"a": "b"}}, {"files": {"a.json": {}}}, {"files": {"a.json": 3}},
        {"files": {"../secret.json": {"bytes": 6, "sha256": hashlib.sha256(b"secret").hexdigest()}}},
        {"files": {"/etc/hostname.json": {}}}, {"files": {"a\0.json": {}}},
    ],
    ids=lambda body: repr(body)[:50],
)  # fmt: skip
def test_a_forged_manifest_is_an_error(tmp_path: Path, body: Any) -> None:
    (tmp_path / "secret.json").write_bytes(b"secret")
    path = forged(tmp_path / "state_0.ckpt", {"a.json": b"1"}, body)
    for read in (checkpoint.verify, checkpoint.read):
        with pytest.raises(CheckpointError, match=r"state_0\.ckpt"):
            read(path)


def test_a_newer_format_says_so(tmp_path: Path, messages: Messages) -> None:
    path = forged(tmp_path / "state_0.ckpt", {}, {"format": 2, "files": "of another type"})
    with pytest.raises(CheckpointError) as caught:
        checkpoint.read(path)
    messages.check(caught.value)
    assert not isinstance(caught.value, Damaged)
    file = path / "MANIFEST.json"
    file.write_bytes(file.read_bytes().replace(b'"format": 2', b'"format": 3'))
    with pytest.raises(Damaged):  # a flipped bit makes no newer format
        checkpoint.read(path)


# --- every operation of a save ----------------------------------------------------------------------------


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def operations_of_a_save(folder: Path) -> int:
    count = 0

    def fault(operation: str, path: str) -> None:
        nonlocal count
        count += 1

    durable.fault = fault
    checkpoint.write(folder, TREES, info(1))
    durable.fault = None
    return count


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_save_that_fails_anywhere_changes_nothing(tmp_path: Path, number: int) -> None:
    (tmp_path / "count").mkdir()
    total = operations_of_a_save(tmp_path / "count")
    assert total > 20
    folder = tmp_path / "Checkpoints"
    folder.mkdir()
    checkpoint.write(folder, TREES, info(0))
    before = digests(folder)
    for position in range(1, total + 1):
        count = 0

        def fault(operation: str, path: str, position: int = position) -> None:
            nonlocal count
            count += 1
            if count == position:
                raise OSError(number, os.strerror(number), path)

        durable.fault = fault
        with pytest.raises(OSError, match=os.strerror(number)):
            checkpoint.write(folder, TREES, info(1))
        durable.fault = None
        assert digests(folder) == before
        assert [path.name for path in folder.iterdir()] == ["state_0.ckpt"]
    checkpoint.write(folder, TREES, info(1))
    assert loads(checkpoint.checkpoint_folder(folder, 1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_save_that_is_killed_anywhere_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    (tmp_path / "count").mkdir()
    total = operations_of_a_save(tmp_path / "count")
    folder = tmp_path / "Checkpoints"
    folder.mkdir()
    checkpoint.write(folder, TREES, info(0))
    before = digests(folder)
    stood = []
    for position in range(1, total + 1):
        _die_at(position, folder)
        durable.sweep(folder)
        assert [path.name for path in folder.iterdir() if durable.is_staging(path.name)] == []
        assert {name: value for name, value in digests(folder).items() if "state_0" in name} == before
        newest = checkpoint.checkpoint_folder(folder, checkpoint.ids(folder)[-1])
        assert loads(newest)
        stood.append(newest.name)
        shutil.rmtree(checkpoint.checkpoint_folder(folder, 1), ignore_errors=True)
    assert set(stood) == {"state_0.ckpt", "state_1.ckpt"}
    checkpoint.write(folder, TREES, info(1))


def _die_at(position: int, folder: Path) -> None:
    """A child that saves, and is gone before its operation ``position``, as by SIGKILL."""
    child = os.fork()
    if child == 0:
        count = 0

        def fault(operation: str, path: str) -> None:
            nonlocal count
            count += 1
            if count == position:
                os._exit(9)

        try:
            durable.fault = fault
            checkpoint.write(folder, TREES, info(1))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_the_readers_own_trouble_is_no_damage(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a good checkpoint would be set aside because too many files were open, or a server away."""
    written = checkpoint.write(tmp_path, {"a": {"b": 1}}, Manifest(id=0, step=1, epoch=0, batch=1))
    path = checkpoint.checkpoint_folder(tmp_path, written.id)

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("roost.base.safe_read.open_fd", fails)
    for read in (checkpoint.read_manifest, checkpoint.verify, checkpoint.read):
        with pytest.raises(OSError, match=os.strerror(number)):
            read(path)


def test_a_device_that_takes_nothing_says_nothing_against_a_checkpoint(tmp_path: Path) -> None:
    weight = torch.ones(2)
    info = checkpoint.write(
        tmp_path, {"n": {"a": weight, "b": weight}}, Manifest(id=0, step=0, epoch=0, batch=0)
    )
    path = checkpoint.checkpoint_folder(tmp_path, info.id)
    _, states = checkpoint.read(path, device="meta")
    assert states["n"]["a"] is states["n"]["b"] and states["n"]["a"].device.type == "meta"
    with pytest.raises(RuntimeError, match="gpu"):
        checkpoint.read(path, device="gpu")


# --- a copy in another package ----------------------------------------------------------------------------


def test_a_copy_is_whole_and_of_its_own_session(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    info = Manifest(
        id=7, step=30, epoch=1, batch=2, session=4, line=[(0, 7)], metrics={"loss": math.nan, "hits": 1.0}
    )
    checkpoint.write(old, {"model": {"a": np.arange(5.0), "b": [1, "x"]}}, info)
    copied = checkpoint.copy(checkpoint.checkpoint_folder(old, 7), new, session=0)
    assert (copied.id, copied.session, copied.line) == (7, 0, [(0, 7)])
    _, states = checkpoint.read(checkpoint.checkpoint_folder(new, 7), to="numpy")
    assert states["model"]["a"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0] and states["model"]["b"] == [1, "x"]
    found = checkpoint.verify(checkpoint.checkpoint_folder(new, 7))
    assert math.isnan(found.metrics["loss"]) and found.metrics["hits"] == 1.0 and found.files == copied.files
    digests = {checkpoint.manifest_digest(checkpoint.checkpoint_folder(one, 7)) for one in (old, new)}
    assert len(digests) == 2, "the session is another one"


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_of_a_damaged_one_nothing_is_copied(tmp_path: Path, damage: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    checkpoint.write(
        old, {"a": {"x": 1}, "b": {"x": np.arange(3.0)}}, Manifest(id=1, step=1, epoch=0, batch=0)
    )
    file = checkpoint.checkpoint_folder(old, 1) / "b.safetensors"
    whole = file.read_bytes()
    file.unlink()
    if damage != "gone":
        file.write_bytes(whole[:-1] + (b"" if damage == "cut" else bytes([whole[-1] ^ 1])))
    with pytest.raises(Damaged, match=r"state_1\.ckpt.*b\.safetensors"):
        checkpoint.copy(checkpoint.checkpoint_folder(old, 1), new, session=0)
    assert list(new.iterdir()) == []
    with pytest.raises(NotFound):
        checkpoint.copy(checkpoint.checkpoint_folder(old, 2), new, session=0)


def test_the_digest_of_the_tensors_of_a_part() -> None:
    def of(*names: str) -> tuple[str | None, int]:
        files = {name: {"bytes": 10 + place, "sha256": name[-20:]} for place, name in enumerate(names)}
        info = Manifest(id=1, step=1, epoch=0, batch=0, ranks=2, files=files)
        return checkpoint.tensor_digest(info, "model")

    assert of("model.json", "trainer.safetensors") == (None, 0)
    assert of("model.safetensors") == ("model.safetensors", 10)
    shards = ("model.safetensors", "model.shard-0.safetensors", "model.shard-1.safetensors")
    digest, size = of(*shards)
    assert size == 33 and digest not in (None, of(*shards[1:])[0], of(shards[0])[0])


def test_files_with_the_name_of_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "state_1.ckpt").mkdir()
    (tmp_path / "state_2.ckpt").write_bytes(b"PK")
    (tmp_path / "best.ckpt").write_bytes(b"PK")
    assert checkpoint.files(tmp_path) == {2: tmp_path / "state_2.ckpt"}
    assert checkpoint.ids(tmp_path) == [1]
