"""What is found out about a project before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import ConfigError
from roost.config import layers
from roost.config.settings import Settings
from roost.package.project_files import checked, named_files
from tests.operations.packages import project


def settings_of(config: Path) -> Settings:
    loaded = layers.load(config)
    return checked(loaded.values, project=config.parent, package="${package}", where=loaded.where)


def files_of(config: Path) -> list[str]:
    found = named_files(settings_of(config), root=config.parent, where=layers.load(config).where)
    return [file.relative_to(config.parent).as_posix() for file in found]


def test_names_runner_dataset_and_hooks(tmp_path: Path) -> None:
    config = project(tmp_path / "p", hooks="[Hooks.py:Mine]")
    (tmp_path / "p" / "Hooks.py").write_text("if True:\n    class Mine: pass\n")
    files = [name for name in files_of(config) if not name.startswith("AnalyzeScripts/")]
    assert files == ["Dataset/Dataset.py", "Hooks.py", "Model/Runner.py"]


def test_analysis_scripts_go_along(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    (tmp_path / "p" / "AnalyzeScripts").mkdir(exist_ok=True)
    (tmp_path / "p" / "AnalyzeScripts" / "look.py").write_text("def experience(self): ...")
    assert "AnalyzeScripts/look.py" in files_of(config)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("class Runner: pass", True),
        ("from elsewhere import Runner", True),
        ("from elsewhere import Base as Runner", True),
        ("from elsewhere import *", True),
        ("try:\n    import x\nexcept ImportError:\n    class Runner: pass", True),
        ("Base = Runner = 3", True),
        ("class Runer: pass", False),
        ("def f():\n    class Runner: pass", False),
        ("print(Runner)", False),
        ("", False),
    ],
)
def test_the_class_is_looked_for_without_importing(tmp_path: Path, code: str, found: bool) -> None:
    config = project(tmp_path / "p")
    (tmp_path / "p" / "Model" / "Runner.py").write_text(code + "\nraise SystemExit\n")
    if found:
        assert "Model/Runner.py" in files_of(config)
    else:
        with pytest.raises(ConfigError, match=r"Model/Runner\.py has no 'Runner'"):
            files_of(config)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("Model/Runer.py:Runner", "there is no file Model/Runer.py"),
        ("Model.Runner", "names no file and class"),
        ("Model/Runner.py", "names no file and class"),
        ("torch.nn.Linear", "names no file and class"),
    ],
)
def test_a_wrong_name_is_told_with_its_place(tmp_path: Path, setting: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        files_of(project(tmp_path / "p", runner=setting))
    assert "runner" in str(error.value) and "config.yaml:" in str(error.value)


def test_a_syntax_error_is_told_with_its_line(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    (tmp_path / "p" / "Model" / "Runner.py").write_text("x = 1\nclass Runner(:\n")
    with pytest.raises(ConfigError, match=r"Runner\.py:2"):
        files_of(config)


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("max_epochs", "many", "max_epochs"),
        ("max_epoch", "3", "max_epochs"),
        ("save_root", "${nothing}", "nothing"),
    ],
)
def test_settings_are_checked_as_the_worker_will_see_them(
    tmp_path: Path, setting: str, value: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        settings_of(project(tmp_path / "p", **{setting: value}))
