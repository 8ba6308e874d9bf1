"""A package that is about to be made; the whole way of `run` is in tests/operations/lifecycle/test_run.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import ConfigError, UsageError
from roost.config import layers
from roost.package.kinds import PackageKind
from roost.package.package import with_overrides
from roost.package.package_draft import prepare_python, prepare_training
from tests.dlnest_project import VALUES, dlnest_project
from tests.messages import Messages
from tests.operations.packages import project


def test_training_copies_the_code_and_knows_its_settings(tmp_path: Path) -> None:
    config = layers.load(project(tmp_path / "p", description="from the config"))
    prepared = prepare_training(config)
    assert not (tmp_path / "p" / "runs").exists(), "nothing is made yet"
    assert prepared.root == tmp_path / "p" / "runs" and prepared.settings.runner == "Model/Runner.py:Runner"
    made = prepared.create("mine", command=["roost", "run"])
    assert made.path == tmp_path / "p" / "runs" / "mine" and (made.path / "Model" / "Runner.py").is_file()
    request = made.request
    assert (request["kind"], request["command"]) == ("train", ["roost", "run"])
    assert request["project"] == str(tmp_path / "p") and request["description"] == "from the config"
    assert (made.path / "_desc: from the config").is_file()
    again = prepare_training(config, root=tmp_path / "else" / "where", description="another")
    assert again.create("mine").path == tmp_path / "else" / "where" / "mine"
    assert again.description == "another"


def test_a_state_needs_no_runner_and_nothing_is_copied_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "loop.py").write_text("print(1)\n")
    file = tmp_path / "p" / "settings.json"
    file.write_text('{"lr": 0.1, "save_root": "out", "checkpoint": {"fast": 1}}')
    config = layers.load(file)
    made = prepare_python(config, copy=False).create(None)
    assert made.path.parent == tmp_path / "p" / "out" and made.manifest["files"] == {}
    assert made.request["kind"] == "python" and made.args["lr"] == 0.1
    made = prepare_python(config, copy=True).create("two")
    assert sorted(made.manifest["files"]) == ["loop.py", "settings.json"]


@pytest.mark.parametrize(
    ("text", "setting", "facts"),
    [
        ("checkpoint: {fats: 1}", None, ["'fats'", "c.yaml:1", "'fast'"]),
        ("checkpoint: 3", "checkpoint", []),
        ("save_root: 3", "save_root", []),
        ("save_root: .", "save_root", ["c.yaml:1", "'.'"]),
        ("save_root: ~nobody-of-that-name/x", "save_root", []),
    ],
)
def test_what_roost_reads_of_it_is_checked(
    tmp_path: Path, text: str, setting: str | None, facts: list[str], messages: Messages
) -> None:
    (tmp_path / "c.yaml").write_text(text + "\n")
    with pytest.raises(ConfigError) as refused:
        prepare_python(layers.load(tmp_path / "c.yaml"), copy=False)
    messages.check(refused.value)
    assert refused.value.setting == setting and all(fact in str(refused.value) for fact in facts)
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_a_root_that_was_given_is_named_as_such(tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "c.yaml").write_text("a: 1\n")
    with pytest.raises(ConfigError) as refused:
        prepare_python(layers.load(tmp_path / "c.yaml"), copy=False, root=tmp_path)
    messages.check(refused.value)
    assert refused.value.setting == "save_root" and repr(str(tmp_path)) in str(refused.value)


def test_a_description_that_makes_no_name_makes_no_package(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("a: 1\n")
    prepared = prepare_python(layers.load(tmp_path / "c.yaml"), copy=False, description="...")
    with pytest.raises(UsageError):
        prepared.create(None)
    assert not (tmp_path / "runs").exists()


def test_a_file_linked_for_its_size_is_reported(tmp_path: Path, messages: Messages) -> None:
    config = project(tmp_path / "p")
    with (tmp_path / "p" / "big.bin").open("wb") as file:
        file.truncate(20 << 20)
    (line,) = prepare_training(layers.load(config)).notes()
    messages.check(line)
    assert "big.bin (" in line


def test_paths_that_are_not_copied_are_named_by_the_first_run_and_each_check(tmp_path: Path) -> None:
    config = project(tmp_path / "project")
    for name in "abcdef":
        (config.parent / f"{name}.bin").write_bytes(bytes(11 * 2**20))
    draft = prepare_training(layers.load(config), root=tmp_path / "runs")
    (line,) = draft.notes(is_check=False)
    assert "a.bin (" in line and "c.bin (" in line and line.endswith(" and 3 more")
    draft.create("one")
    assert draft.notes(is_check=False) == [] and draft.notes() == [line]
    (config.parent / "g.bin").write_bytes(bytes(11 * 2**20))
    assert prepare_training(layers.load(config), root=tmp_path / "runs").notes(is_check=False) != []


def test_of_the_same_files_the_same_is_copied(tmp_path: Path) -> None:
    files = layers.load_files(project(tmp_path / "p"))
    first = prepare_training(files.config(["seed=1"]))
    assert prepare_training(files.config(["seed=2"]), like=first).selection is first.selection
    (tmp_path / "p" / "Model" / "Other.py").write_text("class Runner: pass\n")
    other = prepare_training(files.config(["runner=Model/Other.py:Runner"]), like=first)
    assert "Model/Other.py" in other.selection.files and "Model/Other.py" not in first.selection.files
    elsewhere = prepare_training(files.config(["save_root=else"]), like=first)
    assert elsewhere.selection is not first.selection
    made = first.create("one")
    assert first.create("two", like=made).request["git"] == made.request["git"]


def test_a_project_of_dlnest(tmp_path: Path) -> None:
    config = dlnest_project(tmp_path / "p", home="${HOME}", roost={"description": "from roost"})
    plan = prepare_training(layers.load(config, overrides=["epochs=7", "roost.seed=3"]))
    assert (plan.kind, plan.root, plan.settings.seed) == (PackageKind.DLNEST, tmp_path / "p/Saves", 3)
    made = plan.create("one")
    assert PackageKind.of(made.request) is PackageKind.DLNEST and "places" not in made.request
    assert made.request["description"] == "from roost"
    args = made.args
    assert "child_jsons" not in args and (args["epochs"], args["home"]) == (7, "${HOME}")
    assert args["model"] == {"feats": [1, 64], "lr": 0.1} and args["save_root"] == "Saves"
    assert args["roost"]["seed"] == 3 and args.keys() - VALUES.keys() == {"home", "model", "roost"}
    assert made.provenance["model.lr"] == "model.json:1" and made.provenance["epochs"] == "command line"
    assert set(made.manifest["files"]) == {
        "AnalyzeScripts/show.py", "Dataset/Dataset.py", "LifeCycle.py", "Model/Net.py", "Model/Runner.py",
        "model.json", "root.json",
    }  # fmt: skip
    assert plan.notes() == []
    assert with_overrides(made, made.settings, ["epochs=9"])["epochs"] == 9


def test_misspelled_keys_and_plugins_of_a_project_of_dlnest(tmp_path: Path) -> None:
    """A key is said; a plugin is refused before anything is queued."""
    plan = prepare_training(layers.load(dlnest_project(tmp_path / "p", plugin=["LogInit"])))
    assert any("'plugins'" in note for note in plan.notes())
    with pytest.raises(ConfigError, match="did you mean 'LogInit'"):
        prepare_training(layers.load(dlnest_project(tmp_path / "q", plugins=["LogInt"])))


def test_a_project_of_dlnest_with_a_password(tmp_path: Path) -> None:
    config = dlnest_project(tmp_path / "p", plugins_config={"MailsNote": {"password": "s3cret"}})
    with pytest.raises(ConfigError, match=r"root\.json") as refused:
        prepare_training(layers.load(config))
    assert refused.value.setting == "plugins_config.MailsNote.password" and "s3cret" not in str(refused.value)


def test_what_the_project_has_never_makes_its_submission_fail(tmp_path: Path) -> None:
    """Only what the config names must be copied."""
    config = dlnest_project(tmp_path / "p", other_file_paths=["data/small.bin"])
    (tmp_path / "p/.gitignore").write_text("data\n")
    (tmp_path / "p/data").mkdir()
    (tmp_path / "p/data/small.bin").write_bytes(bytes(11 * 2**20))
    (tmp_path / "p/big.bin").write_bytes(bytes(11 * 2**20))
    (tmp_path / "p/records").mkdir()
    (tmp_path / "p/records/old.txt").write_text("old")
    plan = prepare_training(layers.load(config))
    made = plan.create("one")
    assert (made.path / "data/small.bin").stat().st_size == 11 * 2**20
    assert not (made.path / "data/small.bin").is_symlink() and (made.path / "big.bin").is_symlink()
    assert not (made.path / "records/old.txt").exists()
    assert plan.notes() == [
        "linked, not copied: big.bin (larger than 10 MB)",
        "left out: records (the package has its own)",
        "each run copies 11.5 MB, of which data/small.bin 11.5 MB; what .gitignore names is linked instead",
    ]


def test_a_key_that_no_file_has_is_said(tmp_path: Path) -> None:
    config = layers.load(
        dlnest_project(tmp_path / "p"), overrides=["epcohs=7", "+mine=1", "model.lr=2", "roost.max_time=1h"]
    )
    assert prepare_training(config).notes() == [
        "epcohs is a new key, which no file of the config has; did you mean 'epochs'?"
    ]


def test_a_sweep_selects_the_files_once(tmp_path: Path) -> None:
    files = layers.load_files(dlnest_project(tmp_path / "p"))
    first = prepare_training(files.config(["epochs=1"]))
    again = prepare_training(files.config(["epochs=2"]), like=first)
    assert again.selection is first.selection
    other = prepare_training(files.config(["other_file_paths=[]"]), like=first)
    assert other.selection is not first.selection


def test_the_projects_folder_cannot_be_its_save_root(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        prepare_training(layers.load(dlnest_project(tmp_path / "p", save_root=".")))
    assert refused.value.setting == "save_root"
