"""A project from a template."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path

import pytest
import yaml

from roost.base import durable
from roost.base.errors import NotFound, Refused
from roost.config import layers
from roost.config.dlnest.dlnest_settings import parse_dlnest_settings
from roost.config.run_settings import Contract
from roost.operations.lifecycle import new_project as module
from roost.operations.lifecycle.new_project import TEMPLATES, new_project
from roost.package.project_preflight import check_settings, named_files
from tests.messages import Messages

SOURCE = Path(module.__file__).parents[2] / "templates"
DLNEST = ("dlnest", "dlnest-mnist")
NATIVE = [name for name in TEMPLATES if name not in DLNEST]


@pytest.mark.parametrize("template", TEMPLATES)
def test_copies_everything(tmp_path: Path, template: str) -> None:
    created = new_project(tmp_path / "a" / "b", template=template)
    files = {path.relative_to(created.path).as_posix() for path in created.path.rglob("*") if path.is_file()}
    assert files == set(created.files)
    config = "root_config.json" if template in DLNEST else "config.yaml"
    assert {config, ".gitignore", "README.md"} <= files
    assert template == "experiment" or {"Model/Runner.py", "Dataset/Dataset.py"} <= files
    assert not [name for name in files if "__pycache__" in name]


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_next_commands_go_into_it_run_it_and_analyze_it(tmp_path: Path, template: str) -> None:
    enter, check, run, analyze = new_project(tmp_path / "my project", template=template).next_commands
    config, packages = ("root_config.json", "Saves") if template in DLNEST else ("config.yaml", "runs")
    assert enter == f"cd '{tmp_path / 'my project'}'" and run == f"roost run -c {config}"
    assert check == f"roost check {config}"
    script = tmp_path / "my project" / "AnalyzeScripts" / f"{analyze.split()[-1]}.py"
    assert analyze.startswith(f"roost analyze {packages}/NAME -s ") and script.is_file()


@pytest.mark.parametrize("template", NATIVE)
def test_a_template_is_understood_and_named_whole(tmp_path: Path, template: str) -> None:
    project = new_project(tmp_path / "a", template=template).path
    for config in project.glob("*.yaml"):
        # A file that is no config by itself is laid over one.
        is_whole = config.name == "base.yaml" or "include" in yaml.safe_load(config.read_text())
        is_tuning = config.name != "config.yaml" and not is_whole
        loaded = layers.load(
            project / "config.yaml" if is_tuning else config, tuning=config if is_tuning else None
        )
        settings = check_settings(loaded.values, project=project, package="runs/one", where=loaded.where)
        assert named_files(settings, root=project, where=loaded.where)
    readme = (project / "README.md").read_text()
    for script in (project / "AnalyzeScripts").glob("*.py"):
        said = ast.get_docstring(ast.parse(script.read_text())) or ""
        assert said.endswith(f"roost analyze runs/NAME -s {script.stem}") and script.name in readme


@pytest.mark.parametrize("template", DLNEST)
def test_a_template_of_dlnest_has_its_paths_filled_in(tmp_path: Path, template: str) -> None:
    project = new_project(tmp_path / 'my "own" project', template=template).path
    loaded = layers.load(project / "root_config.json", tuning=project / "freq_config.json")
    settings = parse_dlnest_settings(loaded.values, where=loaded.where)
    assert loaded.contract is Contract.DLNEST
    assert (settings.root_file_path, settings.save_root) == (str(project), str(project / "Saves"))
    named = (settings.runner_file_path, settings.dataset_file_path, settings.life_cycle_file_path)
    assert all((project / name).is_file() for name in (*named, *settings.other_file_paths))
    data = loaded.values["dataset_config"]
    assert data.get("data_root") == (str(project / "MNIST") if template == "dlnest-mnist" else None)
    readme = (project / "README.md").read_text()
    assert [name for name in loaded.values if name in readme] and "${" not in json.dumps(loaded.values)
    for script in (project / "AnalyzeScripts").glob("*.py"):
        said = ast.get_docstring(ast.parse(script.read_text())) or ""
        assert said.endswith(f"roost analyze Saves/NAME -s {script.stem}") and script.name in readme


def test_the_template_of_dlnest_has_the_files_of_its_readme(tmp_path: Path) -> None:
    named = """AnalyzeScripts/getAcc.py AnalyzeScripts/showModel.py Dataset/Dataset.py Model/MNISTCNN.py
    Model/Runner.py common_config.json dataset_config.json freq_config.json model_config.json root_config.json
    LifeCycle.py"""
    created = new_project(tmp_path / "a", template="dlnest-mnist")
    assert sorted(created.files) == sorted([*named.split(), ".gitignore", "README.md"])


def test_of_two_who_found_it_empty_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_new = module.durable.write_new

    def after_another(path: Path, data: list[bytes]) -> None:
        path.write_text("theirs")
        write_new(path, data)

    monkeypatch.setattr(module.durable, "write_new", after_another)
    with pytest.raises(Refused) as refused:
        new_project(tmp_path / "a")
    assert refused.value.where == tmp_path / "a"
    assert {path.read_text() for path in (tmp_path / "a").rglob("*") if path.is_file()} == {"theirs"}


def test_templates_that_show_the_same_show_it_in_the_same_words() -> None:
    for script in (SOURCE / "digits" / "AnalyzeScripts").glob("*.py"):
        assert script.read_text() == (SOURCE / "mnist" / "AnalyzeScripts" / script.name).read_text()


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    assert new_project(tmp_path, template="clean").path == tmp_path


def test_nothing_is_overwritten(tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(Refused) as refused:
        new_project(tmp_path)
    assert refused.value.where == tmp_path
    messages.check(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_unknown_template_names_those_that_are(tmp_path: Path, messages: Messages) -> None:
    known = ", ".join(TEMPLATES)
    with pytest.raises(NotFound) as refused:
        new_project(tmp_path / "a", template="digit")
    assert refused.value.setting == "--template"
    assert all(fact in str(refused.value) for fact in ("'digit'", "'digits'", known))
    messages.check(refused.value)
    assert not (tmp_path / "a").exists()
    assert list(TEMPLATES) == sorted(path.name for path in SOURCE.iterdir())


@pytest.mark.parametrize(
    ("template", "missing"),
    [
        ("digits", ["scikit-learn"]),
        ("iterations", ["scikit-learn"]),
        ("dlnest-mnist", ["scikit-learn"]),
        ("clean", []),
    ],
)
def test_what_is_not_installed_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, missing: list[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    created = new_project(tmp_path / "p", template=template)
    assert created.missing == missing
    assert ("pip install scikit-learn" in created.next_commands[1]) == bool(missing)


def test_on_a_full_disk_nothing_is_left_and_the_next_try_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".yaml"):
            raise OSError(28, "No space left on device", path)

    (tmp_path / "empty").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(durable, "fault", full)
        for name in ("empty", "a/b"):
            with pytest.raises(OSError, match="No space left"):
                new_project(tmp_path / name)
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]
    assert new_project(tmp_path / "a" / "b").files
