"""The folder of the code of a config, which may lie deeper than the code."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from roost.base.errors import ConfigError, NotFound
from roost.config import layers, project_folder
from roost.package.package_draft import TrainingDraft, prepare_python, prepare_training
from tests.messages import Messages
from tests.operations.packages import project


def moved(folder: Path, place: str = "configs/small.yaml", **settings: str) -> Path:
    """A project whose config lies deeper than its code."""
    made = project(folder, **settings)
    config = folder / place
    config.parent.mkdir(parents=True, exist_ok=True)
    return made.rename(config)


def draft(config: Path, *overrides: str, given: Path | None = None) -> TrainingDraft:
    return prepare_training(layers.load(config, overrides=overrides), project=given)


def test_the_nearest_folder_above_that_holds_the_code_is_the_project(tmp_path: Path) -> None:
    config = moved(tmp_path / "p", "configs/deep/small.yaml", data_folder="${project}/data")
    found = draft(config)
    assert found.project == tmp_path / "p" and found.root == tmp_path / "p" / "runs"
    (note,) = found.notes()
    assert note == (
        f"project: {tmp_path / 'p'}, the nearest folder above configs/deep/small.yaml that holds "
        "Model/Runner.py, Dataset/Dataset.py"
    )
    made = found.create("one")
    assert (made.path / "configs" / "deep" / "small.yaml").read_bytes() == config.read_bytes()
    assert (made.path / "Model" / "Runner.py").is_file() and made.project == tmp_path / "p"
    assert not made.changed_files()


def test_the_config_s_own_folder_is_first_and_nothing_is_said(tmp_path: Path) -> None:
    project(tmp_path / "outer")
    config = project(tmp_path / "outer" / "inner")
    found = draft(config)
    assert found.project == tmp_path / "outer" / "inner" and found.notes() == []
    (tmp_path / "outer" / "inner" / "Model" / "Runner.py").unlink()
    assert draft(config).project == tmp_path / "outer", "it holds only a part of what the config names"


def test_a_config_of_library_classes_alone_stays_where_it_is(tmp_path: Path) -> None:
    loaded = layers.load(moved(tmp_path / "p"))
    assert project_folder.nearest_project(loaded, {}).path == tmp_path / "p" / "configs"


def test_values_of_a_sweep_may_lie_in_different_projects(tmp_path: Path) -> None:
    config = moved(tmp_path / "p")
    inner = tmp_path / "p" / "configs" / "Other.py"
    inner.write_text("Runner = Dataset = None\n")
    files = layers.load_files(config)
    first = prepare_training(files.config([]))
    other = prepare_training(files.config(["runner=Other.py:Runner", "dataset=Other.py:Dataset"]), like=first)
    assert (first.project, other.project) == (tmp_path / "p", tmp_path / "p" / "configs")
    assert other.selection is not first.selection and other.selection.files == ["Other.py", "small.yaml"]


@pytest.mark.parametrize("word", ["..", "../../p", "${env:HERE}", "'~'"])
def test_the_config_names_its_project(tmp_path: Path, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = moved(tmp_path / "p", project=word)
    monkeypatch.setenv("HERE", str(tmp_path / "p"))
    monkeypatch.setenv("HOME", str(tmp_path / "p"))
    found = draft(config)
    assert found.project == tmp_path / "p"
    assert found.notes() == [
        f"project: {tmp_path / 'p'}, which small.yaml:{len(config.read_text().splitlines())} names"
    ]
    assert found.create("one").args["project"] == word.strip("'"), "unresolved, as every setting"


def test_the_key_is_relative_to_the_file_that_sets_it(tmp_path: Path) -> None:
    config = moved(tmp_path / "p", "configs/deep/small.yaml", include="../base.yaml")
    (tmp_path / "p" / "configs" / "base.yaml").write_text("project: ..\n")
    assert draft(config).project == tmp_path / "p"


def test_the_caller_s_folder_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = moved(tmp_path / "p", project="nowhere")
    elsewhere = tmp_path / "q"
    project(elsewhere)
    monkeypatch.chdir(tmp_path)
    found = draft(config, given=Path("q"))
    assert found.project == elsewhere and found.notes() == []
    assert found.root == elsewhere / "runs" and "configs/small.yaml" not in found.selection.files
    with pytest.raises(NotFound) as refused:
        draft(config, given=Path("gone"))
    assert refused.value.setting == "--project"


@pytest.mark.parametrize("value", ["nowhere", "3", "[a]", "''", "~no-such-user-here/x"])
def test_a_key_that_is_no_folder_is_refused(tmp_path: Path, value: str, messages: Messages) -> None:
    config = moved(tmp_path / "p", project=value)
    with pytest.raises(ConfigError) as refused:
        draft(config)
    assert refused.value.setting == "project" and "small.yaml:" in str(refused.value.where)
    messages.check(refused.value)


def test_it_is_no_override(tmp_path: Path, messages: Messages) -> None:
    config = moved(tmp_path / "p", project="..")
    for text in ("project=..", "+project=..", "~project"):
        with pytest.raises(ConfigError) as refused:
            draft(config, text)
        messages.check(refused.value)


def test_an_error_lists_the_folders_that_were_looked_in(tmp_path: Path, messages: Messages) -> None:
    config = moved(tmp_path / "p")
    (tmp_path / "p" / ".git").mkdir()
    with pytest.raises(ConfigError) as refused:
        draft(config, "runner=Model/Runer.py:Runner")
    assert refused.value.setting == "runner"
    assert str(refused.value).endswith(f"looked in {tmp_path / 'p' / 'configs'}, {tmp_path / 'p'}")
    messages.check(refused.value)
    (tmp_path / "p" / "configs" / "Model").mkdir()
    (tmp_path / "p" / "Model" / "Runner.py").rename(tmp_path / "p" / "configs" / "Model" / "Runner.py")
    with pytest.raises(ConfigError) as refused:
        draft(config)
    assert f"Model/Runner.py is in {tmp_path / 'p' / 'configs'}" in str(refused.value)
    assert f"Dataset/Dataset.py is in {tmp_path / 'p'}" in str(refused.value)
    messages.check(refused.value)


def a_repository(folder: Path) -> None:
    (folder / ".git").mkdir()


def a_worktree(folder: Path) -> None:
    (folder / ".git").write_text("gitdir: /elsewhere\n")


def writable_by_all(folder: Path) -> None:
    folder.parent.chmod(0o1777)


@pytest.mark.parametrize("border", [a_repository, a_worktree, writable_by_all])
def test_no_folder_above_a_border_is_the_project(tmp_path: Path, border: Callable[[Path], None]) -> None:
    config = moved(tmp_path / "p", "inner/configs/small.yaml")
    assert draft(config).project == tmp_path / "p"
    border(tmp_path / "p" / "inner")
    with pytest.raises(ConfigError):
        draft(config)


def test_the_home_folder_is_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = moved(tmp_path / "p", "inner/configs/small.yaml")
    monkeypatch.setenv("HOME", str(tmp_path / "p" / "inner"))
    with pytest.raises(ConfigError):
        draft(config)
    monkeypatch.setenv("HOME", str(tmp_path / "p"))
    assert draft(config).project == tmp_path / "p"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_code_of_another_user_is_not_found(tmp_path: Path) -> None:
    config = moved(tmp_path / "p")
    os.chown(tmp_path / "p", 12345, 12345)
    with pytest.raises(ConfigError):
        draft(config)
    os.chown(config.parent, 12345, 12345)
    assert draft(config).project == tmp_path / "p", "both are of the same user"


def test_a_link_counts_where_it_lies(tmp_path: Path) -> None:
    config = moved(tmp_path / "p")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "small.yaml").write_bytes(config.read_bytes())
    config.unlink()
    config.symlink_to(tmp_path / "shared" / "small.yaml")
    assert draft(config).project == tmp_path / "p"
    config.unlink()
    config.parent.rmdir()
    (tmp_path / "p" / "configs").symlink_to(tmp_path / "shared")
    assert draft(config).project == tmp_path / "p"


def test_a_loop_of_one_s_own_copies_the_folder_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "loop.py").write_text("print(1)\n")
    config = tmp_path / "configs" / "a.yaml"
    config.write_text("project: my project at a tracker\n")
    made = prepare_python(layers.load(config), copy=True, project=tmp_path).create("one")
    assert sorted(made.manifest["files"]) == ["configs/a.yaml", "loop.py"]
    assert prepare_python(layers.load(config), copy=True).project == tmp_path / "configs"
