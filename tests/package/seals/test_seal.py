"""One seal file: what it says of a file, and of itself."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from roost.package.seals import seal
from roost.package.seals.seal import BrokenSeal, SealedFile
from tests.messages import Messages


def sealed(folder: Path) -> Path:
    (folder / "a.txt").write_bytes(b"one two three")
    (folder / "b").mkdir()
    (folder / "b" / "c.bin").write_bytes(bytes(range(256)))
    path = folder / "seal.json"
    seal.write(path, folder, ["a.txt", "b/c.bin", "nothing.txt", "b"], session=3)
    return path


def test_what_was_sealed_is_read_again(tmp_path: Path) -> None:
    found = seal.read(sealed(tmp_path))
    assert found.session == 3
    assert {name: one.bytes for name, one in found.files.items()} == {"a.txt": 13, "b/c.bin": 256}
    assert all(seal.damage(tmp_path / name, one) is None for name, one in found.files.items())


def test_each_bit_of_a_seal_counts(tmp_path: Path) -> None:
    path = sealed(tmp_path)
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        with pytest.raises(BrokenSeal):
            seal.read(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3, "sha256": ""}', "[" * 5000, '{"sha256": 1}'])
def test_no_seal(tmp_path: Path, text: str) -> None:
    path = tmp_path / "seal.json"
    path.write_text(text)
    with pytest.raises(BrokenSeal):
        seal.read(path)


def test_a_pipe_in_place_of_a_seal_is_no_seal(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "seal.json")
    with pytest.raises(BrokenSeal):  # and does not wait for a writer
        seal.read(path)


def test_how_a_file_differs(tmp_path: Path, messages: Messages) -> None:
    one = seal.read(sealed(tmp_path)).files["a.txt"]
    file = tmp_path / "a.txt"
    for change in (
        lambda: file.write_bytes(b"one two throe"),
        lambda: file.write_bytes(b"one"),
        file.unlink,
        lambda: file.symlink_to("b/c.bin"),
    ):
        change()
        difference = seal.damage(file, one)
        assert difference is not None
        messages.check(difference)


def test_a_folder_that_takes_too_long_is_sealed_by_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal, "_MAX_SECONDS", -1.0)
    found = seal.read(sealed(tmp_path)).files
    assert found["a.txt"] == SealedFile(13, None)
    assert seal.damage(tmp_path / "a.txt", found["a.txt"]) is None
    (tmp_path / "a.txt").write_bytes(b"one")
    assert seal.damage(tmp_path / "a.txt", found["a.txt"]) is not None


def test_the_digest_is_of_all_that_is_above_it(tmp_path: Path) -> None:
    path = sealed(tmp_path)
    body = json.loads(path.read_text())
    body["files"].pop("a.txt")
    path.write_text(json.dumps(body, indent=1) + "\n")
    with pytest.raises(BrokenSeal):
        seal.read(path)
