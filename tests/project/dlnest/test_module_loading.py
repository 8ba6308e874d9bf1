from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from roost.config import objects
from roost.package.package import PackageFolder
from roost.project.dlnest import module_loading
from tests.project.dlnest.projects import DATASET, RUNNER, load, package


def loaded(made: PackageFolder, written: str, name: str) -> type:
    return module_loading.load_class(written, name, made, settings=("path", "name"), where=lambda key: None)


def test_a_file_is_the_module_of_its_path_in_the_package(tmp_path: Path) -> None:
    files = {"Model/Nets/Big.py": "from Model.Net import Net\nclass Big(Net): file = __file__\n"}
    made = package(tmp_path, files)
    found = loaded(made, "./Model/Nets/Big.py", "Big")
    assert found.__module__ == "Model.Nets.Big"
    assert Path(found.file) == made.path / "Model" / "Nets" / "Big.py"  # type: ignore[attr-defined]
    assert sys.modules["Model.Net"].Net in found.__mro__
    assert loaded(made, "Model/Nets/Big.py", "Big") is found


def test_siblings_are_imported_by_bare_name_and_hide_nothing(tmp_path: Path) -> None:
    files = {
        "Model/Runner.py": "import random, beside\nclass Runner: uses = random, beside",
        "Model/random.py": "raise ImportError('the library is meant')",
        "Model/beside.py": "",
    }
    made = package(tmp_path, files)
    found = loaded(made, "./Model/Runner.py", "Runner")
    assert found.uses[0] is random  # type: ignore[attr-defined]
    assert found.uses[1].__file__ == str(made.path / "Model" / "beside.py")  # type: ignore[attr-defined]
    assert sys.path[0] == str(made.path)
    assert sys.path[-1] == str(made.path / "Model")


def test_names_that_other_modules_have(tmp_path: Path) -> None:
    """Neither the name of a library's file nor one that is no identifier keeps a file from being loaded."""
    code = "class Runner: pass"
    made = package(tmp_path, {"json/Runner.py": code, "my-model/1.Runner.py": code, "torch/Runner.py": code})
    for path in ("json/Runner.py", "my-model/1.Runner.py", "torch/Runner.py"):
        found = loaded(made, path, "Runner")
        assert sys.modules[found.__module__].__file__ == str(made.path / path)
    assert "json.Runner" not in sys.modules and "torch.Runner" not in sys.modules


def test_an_absolute_path_is_that_of_the_copy(tmp_path: Path) -> None:
    """Never the file outside of the package: a file of the project has its place, another one the root."""
    made = package(
        tmp_path,
        {"Other.py": "class Runner: pass"},
        request={"places": {"/project/Model/Net.py": "Model/Net.py"}},
    )
    outside = tmp_path / "Other.py"
    outside.write_text("raise ImportError('the live file')")
    assert loaded(made, str(outside), "Runner").__module__ == "Other"
    assert loaded(made, "/project/Model/Net.py", "Net").__module__ == "Model.Net"


def test_the_dataset_is_a_module_by_its_bare_name(tmp_path: Path) -> None:
    """As objects in checkpoints and loader workers refer to it; its folder remains a package."""
    code = f"from Dataset.more import x\n{DATASET}"
    made = package(tmp_path, {"Dataset/more.py": "x = 1", "Dataset/Dataset.py": code})
    load(made).build_dataset()
    dataset = sys.modules["Dataset"]
    assert dataset is sys.modules["Dataset.Dataset"] and isinstance(dataset.Dataset, type)
    assert dataset.Dataset.__module__ == "Dataset"
    from Dataset import more  # type: ignore[import-not-found]
    from Dataset.Dataset import Dataset  # type: ignore[import-not-found]

    assert more.x == 1 and Dataset is dataset.Dataset


def test_a_module_beside_the_dataset_that_was_imported_before(tmp_path: Path) -> None:
    code = "import Dataset.more\nfrom Dataset.Dataset import Dataset\nfrom Net import Net"
    runner = RUNNER.replace("from Net import Net", code)
    load(package(tmp_path, {"Dataset/more.py": "x = 1", "Model/Runner.py": runner}))
    import Dataset.more  # type: ignore[import-not-found]

    assert Dataset.more.x == 1 and Dataset.Dataset is sys.modules["Model.Runner"].Dataset


def test_a_bare_name_that_a_library_has_remains_the_librarys(tmp_path: Path) -> None:
    made = package(
        tmp_path,
        {"Data/random.py": "from DLNest.Common.DatasetBase import DatasetBase\nclass Dataset(DatasetBase):\n"
         "    def init(self, args): return {}, [], []"},
        dataset_file_path="Data/random.py",
    )  # fmt: skip
    load(made).build_dataset()
    assert sys.modules["random"] is random


def test_two_packages_in_one_process(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        made = package(tmp_path / name, {"Model/Net.py": f"class Net: package = {name!r}"})
        found.append(loaded(made, "./Model/Net.py", "Net"))
        objects.unload_project(made.path)
        assert not any(entry.startswith(str(tmp_path)) for entry in sys.path)
    assert [one.package for one in found] == ["a", "b"]  # type: ignore[attr-defined]


def test_a_file_that_fails_is_not_left_behind(tmp_path: Path) -> None:
    made = package(tmp_path, {"Bad.py": "raise ValueError('bad')"})
    with pytest.raises(ValueError, match="bad"):
        loaded(made, "Bad.py", "Bad")
    assert "Bad" not in sys.modules
