"""Nothing of a package's stay in a process is left behind."""

from __future__ import annotations

import os
import random
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from roost.config import objects
from roost.project.package_context import package_code
from tests.project import described
from tests.project.projects import RUNNER, project


def test_everything_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = project(tmp_path)
    mine = types.ModuleType("Model")
    mine.__file__ = str(tmp_path / "elsewhere" / "Model" / "__init__.py")
    monkeypatch.setitem(sys.modules, "Model", mine)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder, path = Path.cwd(), list(sys.path)
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    expected = (torch.rand(3).tolist(), np.random.rand(), random.random())
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    with pytest.raises(KeyError), package_code(package):
        assert Path.cwd() == package.path
        found = objects.locate("Model/Runner.py:Runner", root=package.path)
        assert sys.modules["Model.Runner"].__dict__["Runner"] is found and sys.modules["Model"] is not mine
        torch.rand(5), np.random.rand(), random.random()
        raise KeyError
    assert Path.cwd() == folder and sys.path == path and "Model.Runner" not in sys.modules
    assert sys.modules["Model"] is mine and sys.dont_write_bytecode is False
    assert (torch.rand(3).tolist(), np.random.rand(), random.random()) == expected
    assert not list(package.path.rglob("__pycache__"))


def test_one_after_the_other_and_one_inside_the_other(tmp_path: Path) -> None:
    """All have a module Model.Runner, and a bare Net beside it."""
    code = "from Net import WHO\n" + RUNNER
    packages = [project(tmp_path / name, runner=code) for name in "ab"]
    for package in packages:
        (package.path / "Model" / "Net.py").write_text(f"WHO = {package.path.parent.parent.name!r}\n")

    def who() -> str:
        objects.locate("Model/Runner.py:Runner", root=Path.cwd())
        return str(sys.modules["Model.Runner"].__dict__["WHO"])

    for package, name in zip(packages, "ab", strict=True):
        with package_code(package):
            assert who() == name
    with package_code(packages[0]):
        assert who() == "a"
        first = sys.modules["Model.Runner"]
        for package, name in zip(packages, "ab", strict=True):
            with package_code(package):
                assert who() == name and sys.modules["Model.Runner"] is not first
        assert sys.modules["Model.Runner"] is first and who() == "a"


def test_what_was_built_is_compiled_afterwards(tmp_path: Path) -> None:
    """Twice the same package and one with modules of the same names: each its own."""
    code = "import torch\nFACTOR = {}\ndef scaled(x):\n    return torch.relu(x) * FACTOR\n"
    runner = RUNNER.replace("import roost", "import roost\nfrom Model.Net import scaled").replace(
        "return nn", "return scaled(x.sum()) + 0 * nn"
    )
    packages = [project(tmp_path / name, runner=runner) for name in "ab"]
    for factor, package in enumerate(packages, 2):
        (package.path / "Model" / "Net.py").write_text(code.format(factor))
    built = []
    for package in (*packages, packages[0]):
        with package_code(package):
            built.append(objects.locate("Model/Runner.py:Runner", root=package.path)({"width": 3}))
            built[-1].build()
    for factor, made in zip((2, 3, 2), built, strict=True):
        compiled = torch.compile(lambda batch, made=made: made.loss(batch), backend="eager")
        assert compiled((torch.ones(2, 4), torch.ones(2))).item() == 8 * factor


def test_installed_modules_stay_whatever_a_package_calls_its_folders(tmp_path: Path) -> None:
    package = project(tmp_path)
    for name in ("torch", "numpy", "json", "roost"):
        (package.path / name).mkdir()
    before = {name: sys.modules[name] for name in ("torch", "numpy", "json", "roost")}
    with package_code(package):
        assert {name: sys.modules[name] for name in before} == before


def test_a_working_folder_that_is_gone_is_no_hindrance(tmp_path: Path) -> None:
    package = project(tmp_path)
    here = Path.cwd()
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    try:
        with package_code(package):
            assert Path.cwd() == package.path
        with pytest.raises(FileNotFoundError):
            Path.cwd()
    finally:
        os.chdir(here)


def test_what_debian_installed_stays_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = project(tmp_path)
    (package.path / "debian_library.py").touch()
    library = types.ModuleType("debian_library")
    library.__file__ = "/usr/lib/python3/dist-packages/debian_library.py"
    monkeypatch.setitem(sys.modules, "debian_library", library)
    with package_code(package):
        assert sys.modules["debian_library"] is library


def test_what_lies_beside_a_file_that_a_section_names_is_the_package_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = described.project(
        tmp_path, runner={"model": {"class": "torch.nn.Sequential", "args": ["Deep/In.py:f"]}}
    )
    (package.path / "Deep").mkdir()
    (package.path / "Deep" / "In.py").write_text("import beside\ndef f(): return beside.WHO\n")
    (package.path / "Deep" / "beside.py").write_text("WHO = 'package'\n")
    monkeypatch.setitem(sys.modules, "beside", types.ModuleType("beside"))
    with package_code(package):
        assert objects.locate("Deep/In.py:f", root=package.path)() == "package"
    assert not hasattr(sys.modules["beside"], "WHO")
