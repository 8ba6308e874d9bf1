from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roost.operations.determinism import DeterminismShown, read
from roost.operations.intact import DamagedPackage
from roost.package import environment

GPU = {
    "device": "cuda", "threads": 8, "deterministic": True, "deterministic_warn_only": True,
    "matmul_precision": "ieee", "convolution_precision": "tf32", "rnn_precision": "tf32",
    "cudnn_benchmark": False,
}  # fmt: skip


def written(folder: Path, **body: Any) -> Path:
    (folder / "environment.json").write_text(json.dumps(body))
    return folder


def test_all_of_it(tmp_path: Path) -> None:
    assert read(written(tmp_path, determinism="seeded", stack=GPU, packages={})) == DeterminismShown(
        asked="seeded",
        threads=8,
        algorithms="warn",
        tf32=["convolutions", "recurrent layers"],
        cudnn_benchmark=False,
    )


def test_what_a_worker_writes(tmp_path: Path) -> None:
    body = environment.capture("cpu", seed=0, determinism="strict")
    found = read(written(tmp_path, **body))
    assert found is not None and found.asked == "strict" and found.threads == body["stack"]["threads"]
    assert found.algorithms == "off" and found.tf32 == [] and found.cudnn_benchmark is None


def test_a_package_of_an_older_version(tmp_path: Path) -> None:
    found = read(written(tmp_path, stack={"threads": 2, "deterministic": True}))
    assert found == DeterminismShown(None, 2, "only", [], None)


def test_none_yet(tmp_path: Path) -> None:
    assert read(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff\xfe", b"{}", b'{"stack": 3}', b'{"stack": {"threads": "x"}}', b"[" * 100_000],
)
def test_a_file_that_is_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "environment.json").write_bytes(content)
    with pytest.raises(DamagedPackage, match=r"environment\.json is damaged"):
        read(tmp_path)
    (tmp_path / "environment.json").unlink()
    (tmp_path / "environment.json").mkdir()
    with pytest.raises(DamagedPackage, match="is no plain file"):
        read(tmp_path)
