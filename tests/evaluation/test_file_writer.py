"""Files of samples: their names and contents, back-pressure, and errors that name the sample."""

from __future__ import annotations

import io
import threading
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from roost import Media
from roost.base import durable
from roost.base.errors import ContractError
from roost.evaluation.file_writer import FileWriter, is_file_value, safe_name


def test_each_kind_of_value_becomes_a_file(tmp_path: Path) -> None:
    source = tmp_path / "report.tar.gz"
    source.write_bytes(b"x" * 3_000_000)
    tensor = torch.arange(6.0).reshape(2, 3)
    with FileWriter(tmp_path) as files:
        names = {
            "array": files.add("a/b", "array", tensor),
            "half": files.add("a/b", "half", torch.ones(3, dtype=torch.bfloat16)),
            "picture": files.add("a/b", "picture", Media("image", np.zeros((4, 5)))),
            "sound": files.add("a/b", "sound", Media("audio", torch.zeros(2, 800), rate=8000)),
            "matrix": files.add("a/b", "matrix", Media("matrix", np.eye(2))),
            "note": files.add("a/b", "note", Media("text", "hé")),
            "copy": files.add("a/b", "copy", source),
        }
        tensor.zero_()  # the model uses the memory again
    assert names["array"] == {"file": "files/a%2Fb.array.npy"}
    found = {name: (tmp_path / one["file"]).read_bytes() for name, one in names.items()}
    assert np.load(io.BytesIO(found["array"])).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.load(io.BytesIO(found["half"])).dtype == np.float32
    assert found["picture"].startswith(b"\x89PNG") and found["matrix"].startswith(b"\x89PNG")
    with wave.open(io.BytesIO(found["sound"])) as sound:
        assert (sound.getnchannels(), sound.getframerate(), sound.getnframes()) == (2, 8000, 800)
    assert found["note"] == "hé".encode() and found["copy"] == source.read_bytes()
    assert (tmp_path / "files/a%2Fb.matrix.npy").is_file()  # beside its heat map
    assert not [path for path in (tmp_path / "files").iterdir() if durable.is_staging(path.name)]


def test_names_are_safe_and_different() -> None:
    ids = ["a", "a/b", "a%2Fb", "..", ".hidden", "", "ä", "x" * 400, "x" * 399 + "y", "a.b", "con\n"]
    names = [safe_name(id_, "out") for id_ in ids] + [safe_name("a", "b.out"), safe_name(7, "o/u:t")]
    assert len({name.casefold() for name in names}) == len(names)
    assert all(
        len(name.encode()) < 200 and "/" not in name and name[0] != "." for name in names[:5] + names[6:]
    )
    assert names[-1] == "7.o%2Fu%3At"


def test_little_is_pending(tmp_path: Path) -> None:
    """A value beyond the limit waits until the ones before it are written."""
    gate, reached = threading.Event(), threading.Event()

    def block(operation: str, path: str) -> None:
        if operation == "open":
            reached.set()
            gate.wait(100)

    durable.fault = block
    try:
        with FileWriter(tmp_path, num_threads=1, max_pending_bytes=1000) as files:
            files.add(0, "x", np.zeros(100, np.uint8))
            reached.wait(100)
            files.add(1, "x", np.zeros(800, np.uint8))
            second = threading.Thread(target=files.add, args=(2, "x", np.zeros(500, np.uint8)))
            second.start()
            second.join(0.05)
            assert second.is_alive()
            gate.set()
            second.join(100)
            assert not second.is_alive()
            files.add(3, "x", np.zeros(5000, np.uint8))  # larger than the limit: taken alone
    finally:
        durable.fault = None
    assert len(list((tmp_path / "files").iterdir())) == 4


def test_an_error_names_its_sample_and_ends_the_rest(tmp_path: Path) -> None:
    def full(operation: str, path: str) -> None:
        if operation == "write" and "utt7" in path:
            raise OSError(28, "No space left on device", path)

    durable.fault = full
    try:
        with pytest.raises(OSError, match="No space left") as caught, FileWriter(tmp_path) as files:
            for number in range(20):
                files.add(f"utt{number}", "x", np.zeros(10))
            files.wait()
    finally:
        durable.fault = None
    assert "of sample 'utt7'" in "".join(caught.value.__notes__)
    with pytest.raises(ContractError) as refused, FileWriter(tmp_path) as files:
        files.add(3, "map", Media("matrix", np.zeros((2, 2, 2))))
    assert "sample 3" in str(refused.value)


@pytest.mark.parametrize("value", [object(), Path("missing.wav"), np.array([object()])])
def test_what_cannot_be_a_file_is_refused_at_once(tmp_path: Path, value: object) -> None:
    with pytest.raises(ContractError) as caught, FileWriter(tmp_path) as files:
        files.add("utt1", "out", value)
    assert caught.value.setting == "test()['out'] of sample 'utt1'"


def test_which_values_are_files() -> None:
    assert is_file_value(Media("text", "a")) and is_file_value(Path("x"))
    assert not is_file_value("a") and not is_file_value(np.zeros(3)) and not is_file_value(1.0)
