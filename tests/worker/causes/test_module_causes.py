from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

from roost.package.package import PackageFolder
from roost.worker.causes.module_causes import PIP_NAMES
from tests.messages import Messages
from tests.project.projects import project
from tests.worker.causes.scenes import known, of, texts, unknown


def missing(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("cv2", "opencv-python"),
        ("PIL", "pillow"),
        ("PIL.Image", "pillow"),
        ("sklearn.linear_model", "scikit-learn"),
        ("yaml", "PyYAML"),
        ("skimage", "scikit-image"),
        ("einops", "einops"),
    ],
)
def test_what_to_install(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.delitem(sys.modules, name.partition(".")[0], raising=False)
    cause = known(missing(name))
    assert f" {name.partition('.')[0]} " in cause.description and sys.executable in cause.description
    command, _, more = cause.fix.partition(f"{sys.executable} -m pip install {package}")
    assert command == "" and bool(more) == (package == name), "not sure where the names may differ"
    if more:
        messages.check(more)


def test_for_real() -> None:
    cause = known(of(lambda: importlib.import_module("no_such_module_at_all.part")))
    assert " no_such_module_at_all " in cause.description and "pip install no_such_module_at_all" in cause.fix


def test_the_table_holds_what_differs() -> None:
    assert all(name != package for name, package in PIP_NAMES.items())


def test_a_part_of_a_library_of_another_version() -> None:
    cause = known(of(lambda: importlib.import_module("torch.no_such_part")))
    assert (
        cause.description.startswith(f"torch {torch.__version__} ")
        and "torch.no_such_part" in cause.description
    )
    assert "pip install" not in cause.fix


@pytest.fixture
def package(tmp_path: Path) -> PackageFolder:
    (tmp_path / "lib").mkdir()
    for name in ("helpers.py", "lib/deep.py", "Dataset.py"):
        (tmp_path / name).touch()
    made = project(tmp_path)
    file = made.path / "manifest.json"
    body = json.loads(file.read_bytes())
    file.write_text(json.dumps({**body, "left_out": [{"path": "lib/deep.py", "reason": "too large"}]}))
    return made


@pytest.mark.parametrize(
    ("name", "file", "why"),
    [
        ("helpers", "helpers.py", "newer"),
        ("lib.deep", "lib/deep.py", "too large"),
        ("lib", "lib", "newer"),
    ],
)
def test_a_module_of_the_project_that_was_not_copied(
    package: PackageFolder, name: str, file: str, why: str, messages: Messages
) -> None:
    cause = known(missing(name), package.path)
    assert cause.description.startswith(f"{file} ") and why in cause.description
    messages.check(texts(cause))
    assert "pip install" not in cause.fix


def test_one_that_was_copied_or_is_nowhere_is_not_called_left_out(package: PackageFolder) -> None:
    for name in ("Dataset", "Dataset.part", "nothing"):
        assert "pip install" in known(missing(name), package.path).fix


@pytest.mark.parametrize(
    "error",
    [
        ImportError("cannot import name 'a' from 'torch'"),
        ImportError("No module named 'cv2'"),
        ModuleNotFoundError("spam"),
        ImportError("libcudart.so.12: cannot open shared object file: No such file or directory"),
    ],
)
def test_what_only_sounds_like_it(error: Exception) -> None:
    assert unknown(error)
