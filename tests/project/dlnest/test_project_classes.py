from __future__ import annotations

import importlib.machinery
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from roost.config.dlnest.dlnest_settings import parse_dlnest_settings
from roost.project.dlnest import import_names
from roost.project.dlnest.project_classes import load_classes
from roost.project.package_context import package_code
from tests.project.dlnest.projects import DATASET, NET, RUNNER, load, package
from tests.project.staging.archives import pack

METER = "\nclass Meter:\n    value = 1\n"


def test_a_copy_of_dlnest_in_the_project_is_not_used_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor in loader workers, which find modules by the path alone."""
    made = package(tmp_path, {"DLNest/__init__.py": "raise ImportError('the project has a copy')"})
    load_classes(made, parse_dlnest_settings(made.settings))
    assert "DLNest is found on this machine, too" in capsys.readouterr().out
    found = importlib.machinery.PathFinder.find_spec("DLNest", sys.path)
    assert found is not None and found.origin == str(Path(import_names.FOLDER) / "DLNest" / "__init__.py")


def test_pickled_objects_of_the_projects_classes_can_be_read(tmp_path: Path) -> None:
    """In another process, and after the package was moved."""
    made = package(
        tmp_path,
        {
            "my-model/Runner.py": RUNNER + METER,
            "Dataset/Dataset.py": DATASET + METER,
            "my-model/Net.py": "Net = 1",
        },
        runner_file_path="./my-model/Runner.py",
    )
    classes = load_classes(made, parse_dlnest_settings(made.settings))
    modules = [sys.modules[one.found.__module__] for one in (classes.runner, classes.dataset)]
    meters = [module.Meter() for module in modules]
    (tmp_path / "meters").write_bytes(pickle.dumps(meters))
    moved = made.path.rename(tmp_path / "moved")
    program = f"""
import pickle, sys
from pathlib import Path
from roost.config.dlnest.dlnest_settings import parse_dlnest_settings
from roost.package.package import PackageFolder
from roost.project.dlnest.project_classes import load_classes
made = PackageFolder.open({str(moved)!r})
load_classes(made, parse_dlnest_settings(made.settings))
assert [one.value for one in pickle.loads(Path({str(tmp_path / "meters")!r}).read_bytes())] == [1, 1]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_classes_have_their_generations(tmp_path: Path) -> None:
    made = package(tmp_path)
    classes = load_classes(made, parse_dlnest_settings(made.settings))
    assert [one.generation for one in classes] == ["0.3.2"] * 3
    assert [one.found.__name__ for one in classes] == ["LifeCycle", "Runner", "Dataset"]


def test_packages_in_a_process_that_serves_several(tmp_path: Path) -> None:
    """Each gets its own modules, also where its names are those of loaded modules; nothing remains."""
    found = []
    path, before = list(sys.path), set(sys.modules)
    for name in ("a", "b"):
        net = NET + f"    name = {name!r}\n"
        made = package(tmp_path / name, {"Model/Net.py": net})
        with package_code(made):
            project = load(made, analyzing=True)
            assert project.build()
        found.append(project.runner.model)
    assert [one.name for one in found] == ["a", "b"]
    assert found[0](torch.ones(1, 4)).shape == (1, 2)
    assert sys.path == path
    assert not {
        one for one in set(sys.modules) - before if one.startswith(("Net", "Model", "DLNest", "Dataset"))
    }
    assert import_names.FINDER not in sys.meta_path


def test_the_project_finds_its_staged_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Already when its modules are imported."""
    monkeypatch.setattr(os, "environ", {**os.environ, "ROOST_SCRATCH": str(tmp_path / "scratch")})
    archive = pack(tmp_path / "data.zip", {"a": b"1"})
    look = "\nimport os, pathlib\nFOUND = (pathlib.Path(os.environ['ROOST_STAGED']) / 'a').read_bytes()\n"
    made = package(
        tmp_path, {"Dataset/Dataset.py": DATASET + look}, roost={"data": {"stage": {"archive": str(archive)}}}
    )
    classes = load_classes(made, parse_dlnest_settings(made.settings))
    assert sys.modules[classes.dataset.found.__module__].FOUND == b"1"
    assert os.environ["ROOST_STAGED"] == os.environ["ROOST_STAGED_DATA"]
