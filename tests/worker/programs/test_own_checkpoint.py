"""The newest whole checkpoint among files that a program has written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from roost.package import snapshot
from roost.package.program_request import ProgramRequest
from roost.worker.programs import own_checkpoint

COPY = ProgramRequest(["python"], "/project", cwd=".")


def aged(path: Path, age: float) -> Path:
    os.utime(path, (1e9 - age, 1e9 - age))
    return path


def test_the_newest_one_that_is_whole(tmp_path: Path) -> None:
    first, second = tmp_path / "out" / "1.pt", tmp_path / "out" / "2.pt"
    first.parent.mkdir()
    for path, age in ((first, 20), (second, 10)):
        torch.save({"a": torch.zeros(1000)}, path)
        aged(path, age)
    copied = tmp_path / "pretrained.pt"
    torch.save({}, copied)
    entry = {"size": copied.stat().st_size, "sha256": snapshot.file_digest(copied)}
    assert own_checkpoint.newest(tmp_path, COPY, copied={"pretrained.pt": entry}) == second
    cut = second.read_bytes()[:-100]
    second.write_bytes(cut)
    aged(second, 0)
    assert own_checkpoint.newest(tmp_path, COPY, copied={"pretrained.pt": entry}) == first
    torch.save({"written": "over it"}, copied)
    assert own_checkpoint.newest(tmp_path, COPY, copied={"pretrained.pt": entry}) == copied


def test_a_folder_of_hugging_face(tmp_path: Path) -> None:
    for name, age in (("checkpoint-10", 20), ("checkpoint-20", 10)):
        folder = tmp_path / "out" / name
        folder.mkdir(parents=True)
        save_file({"w": torch.zeros(10)}, folder / "model.safetensors")
        (folder / "trainer_state.json").write_text("{}")
        aged(folder / "trainer_state.json", age)
    assert own_checkpoint.newest(tmp_path, COPY) == tmp_path / "out" / "checkpoint-20"
    weights = tmp_path / "out" / "checkpoint-20" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    assert own_checkpoint.newest(tmp_path, COPY) == tmp_path / "out" / "checkpoint-10"


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 8, b"PK\x03\x04", b"\2" + bytes(7) + b"[]", b"\5" + bytes(7) + b'{"":1']
)
def test_what_is_cut_is_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    for name in ("a.safetensors", "a.pt"):
        (tmp_path / name).write_bytes(content)
    found = own_checkpoint.newest(tmp_path, COPY)
    assert found is None or (found.suffix == ".pt" and not content.startswith(b"PK"))


def test_what_is_no_file_is_no_checkpoint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.pt")
    (tmp_path / "b.pt").mkdir()
    (tmp_path / "c.pt").symlink_to("c.pt")
    assert own_checkpoint.newest(tmp_path, COPY) is None


def test_in_place_only_the_folder_of_the_package_counts(tmp_path: Path) -> None:
    in_place = ProgramRequest(["python"], str(tmp_path))
    (tmp_path / "others.pt").write_bytes(b"x")
    assert own_checkpoint.newest(tmp_path, in_place) is None
    own = own_checkpoint.checkpoint_folder(tmp_path) / "mine.pt"
    own.parent.mkdir()
    own.write_bytes(b"x")
    assert own_checkpoint.newest(tmp_path, in_place) == own


def test_a_folder_of_accelerate_and_not_the_parts_of_one_that_a_kill_has_cut(tmp_path: Path) -> None:
    for name, age in (("epoch_1", 30), ("epoch_2", 20)):
        folder = tmp_path / "out" / name
        folder.mkdir(parents=True)
        save_file({"w": torch.zeros(10)}, folder / "model.safetensors")
        torch.save({"rng": 1}, folder / "random_states_0.pkl")
        aged(folder / "random_states_0.pkl", age)
        aged(folder / "model.safetensors", age - 5)
    cut = tmp_path / "out" / "epoch_3"
    cut.mkdir()
    save_file({"w": torch.zeros(10)}, cut / "model.safetensors")  # accelerate writes the random states last
    assert own_checkpoint.newest(tmp_path, COPY) == tmp_path / "out" / "epoch_2"


@pytest.mark.parametrize("early", ["optimizer.bin", "training_args.bin"])
def test_the_parts_of_a_first_folder_that_a_kill_has_cut_are_no_checkpoint(
    tmp_path: Path, early: str
) -> None:
    cut = tmp_path / "out" / "epoch_1"
    cut.mkdir(parents=True)
    save_file({"w": torch.zeros(10)}, cut / "model.safetensors")
    torch.save({"m": 1}, cut / early)
    by_name = COPY._replace(checkpoint_pattern="epoch_*")
    assert own_checkpoint.newest(tmp_path, COPY) is own_checkpoint.newest(tmp_path, by_name) is None
    (cut / "whole").mkdir()
    save_file({"w": torch.zeros(10)}, cut / "whole" / "model.safetensors")
    (cut / "whole" / "trainer_state.json").write_text("{}")
    assert own_checkpoint.newest(tmp_path, COPY) == cut / "whole"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("last*.pt", "out/last-2.pt"),
        ("out/epoch_*", "out/epoch_2"),
        ("state.npz", "out/state.npz"),
        ("linked.pt", "linked.pt"),
        ("none.pt", None),
    ],
)
def test_a_pattern_says_what_a_checkpoint_is(tmp_path: Path, pattern: str, expected: str | None) -> None:
    out, package = tmp_path / "p" / "out", tmp_path / "p"
    for name, age in (("epoch_1", 40), ("epoch_2", 30)):
        (out / name).mkdir(parents=True)
        (out / name / "weights").write_bytes(b"x")
        aged(out / name / "weights", age)
    for name, age in (("last-1.pt", 20), ("last-2.pt", 15), ("state.npz", 10), ("best.pt", 5)):
        (out / name).write_bytes(b"x")
        aged(out / name, age)
    (tmp_path / "data.pt").write_bytes(b"x")
    (out / "last-3.pt").symlink_to(tmp_path / "data.pt")  # leads out of the package: no result of the run
    (package / "linked.pt").symlink_to("out/best.pt")
    program = COPY._replace(checkpoint_pattern=pattern)
    found = own_checkpoint.newest(package, program)
    assert found == (package / expected if expected else None)
