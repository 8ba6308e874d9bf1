"""The files that a config of DLNest's contract names, and their places in a package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.config import layers
from roost.config.dlnest.dlnest_settings import DlnestSettings, parse_dlnest_settings
from roost.config.dlnest.root_folder import find_root
from roost.package.dlnest.named_paths import (
    PLACES,
    NamedPaths,
    find_named,
    packaged_path,
    require_packaged,
)
from roost.package.package import PackageFolder, with_overrides
from roost.package.package_draft import prepare_training
from roost.package.project_preflight import code_of, require_classes, require_plugins
from tests.dlnest_project import RUNNER, dlnest_project
from tests.messages import Messages


def find(config: Path) -> NamedPaths:
    loaded = layers.load(config)
    settings, root = parse_dlnest_settings(loaded.values, where=loaded.where), find_root(loaded, None)
    found = find_named(settings, root, loaded.where)
    require_classes(settings, root.resolve, loaded.where)
    require_plugins(settings, root.resolve, loaded.where)
    return found


def refusal(config: Path) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        find(config)
    return refused.value


def write(path: Path, text: str = "x = 1\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_relative_paths_keep_their_places(tmp_path: Path) -> None:
    found = find(dlnest_project(tmp_path / "p"))
    assert [path.relative_to(tmp_path / "p").as_posix() for path in found.inside] == [
        "Model/Runner.py",
        "Dataset/Dataset.py",
        "LifeCycle.py",
        "Model/Net.py",
    ]
    assert found.outside == {} and found.places == {}


def test_an_absolute_path_in_the_project_keeps_its_place(tmp_path: Path) -> None:
    inside = str(tmp_path / "p/Model/Runner.py")
    found = find(dlnest_project(tmp_path / "p", runner_file_path=inside))
    assert found.places == {inside: "Model/Runner.py"} and found.outside == {}


def test_a_path_outside_is_in_the_packages_own_folder(tmp_path: Path) -> None:
    """A file under its name, a folder under its stem, as DLNest says."""
    file, folder = write(tmp_path / "shared/tools.py"), tmp_path / "shared/data.v2"
    write(folder / "deep/a.txt")
    write(tmp_path / "beside/util.py")
    plugin = write(tmp_path / "plugins/Mine.py", PLUGIN.format(name="Mine"))
    others = [file, str(folder), "../beside/util.py", "Model", "."]
    config = dlnest_project(tmp_path / "p", other_file_paths=others, plugins=["LogInit", plugin])
    found = find(config)
    assert found.outside == {
        "tools.py": Path(file),
        "data": folder,
        "util.py": tmp_path / "beside/util.py",
        "Mine.py": Path(plugin),
    }
    assert found.places == {
        file: "tools.py",
        str(folder): "data",
        "../beside/util.py": "util.py",
        plugin: "Mine.py",
    }


def test_a_path_is_found_again_in_the_package(tmp_path: Path) -> None:
    file = write(tmp_path / "shared/Runner.py", RUNNER)
    folder = tmp_path / "shared/data.v2"
    write(folder / "deep/a.txt", "deep")
    (tmp_path / "p").mkdir()
    config = dlnest_project(tmp_path / "p/q", runner_file_path=file, other_file_paths=[str(folder), "Model"])
    made = prepare_training(layers.load(config)).create("one")
    assert made.args["runner_file_path"] == file
    assert packaged_path(made.path, made.request, file) == made.path / "Runner.py"
    assert (made.path / "Runner.py").read_text() == RUNNER
    assert (packaged_path(made.path, made.request, str(folder)) / "deep/a.txt").read_text() == "deep"
    assert packaged_path(made.path, made.request, "./Model") == made.path / "Model"
    assert {"Runner.py", "data/deep/a.txt", "Model/Runner.py", "root.json"} <= made.manifest["files"].keys()
    settings = read(made)
    assert require_packaged(settings, made, lambda key: None) == [
        made.path / name for name in ("Runner.py", "Dataset/Dataset.py", "LifeCycle.py", "data", "Model")
    ]


def read(made: PackageFolder) -> DlnestSettings:
    return parse_dlnest_settings(made.settings)


def test_the_same_path_named_twice(tmp_path: Path) -> None:
    file = write(tmp_path / "tools.py")
    found = find(dlnest_project(tmp_path / "p", other_file_paths=[file, file, "../tools.py"]))
    assert found.outside == {"tools.py": Path(file)}
    assert found.places == {file: "tools.py", "../tools.py": "tools.py"}


def test_a_link_in_the_project_is_copied_as_what_it_leads_to(tmp_path: Path) -> None:
    file = write(tmp_path / "elsewhere/Net.py", "class Net:\n    deep = 1\n")
    config = dlnest_project(tmp_path / "p")
    (tmp_path / "p/Model/Net.py").unlink()
    (tmp_path / "p/Model/Net.py").symlink_to(file)
    assert find(config).outside == {"Model/Net.py": Path(file)}
    made = prepare_training(layers.load(config)).create("one")
    copied = made.path / "Model/Net.py"
    assert not copied.is_symlink() and copied.read_text() == Path(file).read_text()
    assert made.changed_files() == []


def test_a_moved_project_finds_its_files(tmp_path: Path) -> None:
    config = dlnest_project(
        tmp_path / "p",
        root_file_path="/home/alice/old",
        save_root="/home/alice/old/Saves",
        life_cycle_file_path="/home/alice/old/LifeCycle.py",
    )
    plan = prepare_training(layers.load(config))
    assert plan.root == tmp_path / "p/Saves"
    assert plan.places == {"/home/alice/old/LifeCycle.py": "LifeCycle.py"}
    assert any("/home/alice/old" in note for note in plan.notes())


def test_what_is_wrong_with_a_path_is_said(tmp_path: Path, messages: Messages) -> None:
    one, two = write(tmp_path / "a/tools.py"), write(tmp_path / "b/tools.py")
    cases: list[dict[str, Any]] = [
        {"other_file_paths": ["Model/Net.py", "Model/Gone.py"]},
        {"other_file_paths": [one, two]},
        {"other_file_paths": [write(tmp_path / "c/LifeCycle.py")]},
        {"other_file_paths": [write(tmp_path / "d/args.json", "{}")]},
        {"runner_file_path": "Model"},
        {"runner_file_path": "Model/Gone.py"},
        {"runner_name": "Runer"},
        {"plugins": ["LogInit", "Plugins/Gone.py"]},
        {"life_cycle_file_path": "model.json"},
    ]
    settings = []
    for number, values in enumerate(cases):
        error = refusal(dlnest_project(tmp_path / str(number), **values))
        settings.append(error.setting)
        assert str(error.where).startswith("root.json:"), error
        messages.check(error)
    assert settings == [
        "other_file_paths.1",
        "other_file_paths.1",
        "other_file_paths.0",
        "other_file_paths.0",
        "runner_file_path",
        "runner_file_path",
        "runner_name",
        "plugins.1",
        "life_cycle_name",
    ]


def test_the_older_names_are_in_the_message(tmp_path: Path) -> None:
    config = dlnest_project(
        tmp_path / "p", runner_file_path=..., runner_name=..., model_file_path="M.py", model_name="M"
    )
    assert refusal(config).setting == "model_file_path"


def test_a_path_that_was_not_copied(tmp_path: Path, messages: Messages) -> None:
    made = prepare_training(layers.load(dlnest_project(tmp_path / "p"))).create("one")
    assert PLACES not in made.request
    for written in ("/etc/hosts", "../Runner.py"):
        with pytest.raises(ConfigError) as refused:
            packaged_path(made.path, made.request, written)
        messages.check(refused.value)
    for override in ("runner_file_path=/etc/hosts", "other_file_paths=[Gone]", "runner_name=Walker"):
        settings = parse_dlnest_settings(with_overrides(made, made.settings, [override]))
        with pytest.raises(ConfigError) as refused:
            code_of(settings, made, lambda key: "command line")
        assert refused.value.setting in override or refused.value.setting == "other_file_paths.0"
        messages.check(refused.value)


PLUGIN = "class DLNestPlugin:\n    _NAME = {name!r}\n"


@pytest.mark.parametrize(
    ("plugins", "says"),
    [
        (["LogInit", "LogInit"], "two plugins have the name LogInit: LogInit and LogInit"),
        (["LogInit", "./p/Log.py"], "two plugins have the name LogInit: LogInit and ./p/Log.py"),
        (["LogINit"], "there is no such plugin"),
        (["./p/Other.py"], "./p/Other.py has no 'DLNestPlugin'"),
        (["./p"], "is not a file"),
    ],
)
def test_plugins_are_checked_before_a_package_is_made(
    tmp_path: Path, plugins: list[str], says: str, messages: Messages
) -> None:
    config = dlnest_project(tmp_path / "p", plugins=plugins)
    write(tmp_path / "p/p/Log.py", PLUGIN.format(name="LogInit"))
    write(tmp_path / "p/p/Other.py")
    with pytest.raises(ConfigError) as refused:
        prepare_training(layers.load(config))
    assert refused.value.message == says and str(refused.value.setting).startswith("plugins.")
    messages.check(refused.value)


def test_plugins_whose_names_only_their_import_would_say(tmp_path: Path) -> None:
    config = dlnest_project(tmp_path / "p", plugins=["LogInit", "./a/Same.py", "./b/Same.py", "./c/Own.py"])
    for folder in "ab":
        write(tmp_path / f"p/{folder}/Same.py", f"NAME = {folder!r}\nclass DLNestPlugin:\n    _NAME = NAME\n")
    write(tmp_path / "p/c/Own.py", PLUGIN.format(name="Own"))
    prepare_training(layers.load(config))


@pytest.mark.parametrize("path", ["/dev/null", "./fifo", "/"])
def test_what_cannot_be_copied_is_refused(tmp_path: Path, path: str, messages: Messages) -> None:
    config = dlnest_project(tmp_path / "p", other_file_paths=[path])
    os.mkfifo(tmp_path / "p/fifo")
    messages.check(refusal(config))
