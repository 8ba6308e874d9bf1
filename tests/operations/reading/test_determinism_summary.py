from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.operations.reading.determinism_summary import DeterminismSummary, read
from roost.operations.reading.package_schema import DamagedPackage
from roost.package.resume import environment
from roost.train.accelerators.registry import accelerator_of
from tests.messages import Messages

GPU = {
    "device": "cuda", "threads": 8, "deterministic": True, "deterministic_warn_only": True,
    "matmul_precision": "ieee", "convolution_precision": "tf32", "rnn_precision": "tf32",
    "cudnn_benchmark": False,
}  # fmt: skip


def written(folder: Path, **body: Any) -> Path:
    (folder / "environment.json").write_text(json.dumps(body))
    return folder


def test_all_of_it(tmp_path: Path) -> None:
    assert read(written(tmp_path, determinism="seeded", stack=GPU, packages={})) == DeterminismSummary(
        asked="seeded",
        threads=8,
        algorithms="warn",
        tf32=["convolutions", "recurrent layers"],
        cudnn_benchmark=False,
    )


def test_what_a_worker_writes(tmp_path: Path) -> None:
    body = environment.capture("cpu", accelerator_of("cpu"), seed=0, determinism="strict")
    found = read(written(tmp_path, **body))
    assert found is not None and found.asked == "strict" and found.threads == torch.get_num_threads()
    assert found.algorithms == "off" and found.tf32 == [] and found.cudnn_benchmark is None


def test_a_package_of_an_older_version(tmp_path: Path) -> None:
    found = read(written(tmp_path, stack={"threads": 2, "deterministic": True}))
    assert found == DeterminismSummary(None, 2, "only", [], None)


def test_none_yet(tmp_path: Path) -> None:
    assert read(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff\xfe", b"{}", b'{"stack": 3}', b'{"stack": {"threads": "x"}}', b"[" * 100_000],
    ids=["empty", "a list", "no UTF-8", "no stack", "no section", "no number", "too deep"],
)
def test_a_file_that_is_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "environment.json").write_bytes(content)
    with pytest.raises(DamagedPackage) as refused:
        read(tmp_path)
    assert "environment.json" in str(refused.value)
    assert refused.value.where == tmp_path


def test_a_folder_in_its_place(tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "environment.json").mkdir()
    with pytest.raises(DamagedPackage) as refused:
        read(tmp_path)
    assert refused.value.where == tmp_path
    messages.check(refused.value)
