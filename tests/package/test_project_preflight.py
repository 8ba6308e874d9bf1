"""What is found out about a project before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import ConfigError
from roost.config import layers
from roost.config.dlnest.dlnest_settings import DlnestSettings
from roost.config.settings import Settings
from roost.package.package import PackageFolder, with_overrides
from roost.package.package_draft import prepare_training
from roost.package.project_preflight import (
    check_settings,
    code_of,
    format_classes,
    named_files,
    parse_package_settings,
)
from roost.package.setting_locations import setting_locations
from tests.dlnest_project import dlnest_project
from tests.messages import Messages
from tests.operations.packages import project


def settings_of(config: Path) -> Settings:
    loaded = layers.load(config)
    return check_settings(loaded.values, project=config.parent, package="${package}", where=loaded.where)


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
def test_the_class_is_looked_for_without_importing(
    tmp_path: Path, code: str, found: bool, messages: Messages
) -> None:
    config = project(tmp_path / "p")
    (tmp_path / "p" / "Model" / "Runner.py").write_text(code + "\nraise SystemExit\n")
    if found:
        assert "Model/Runner.py" in files_of(config)
    else:
        with pytest.raises(ConfigError) as refused:
            files_of(config)
        messages.check(refused.value)
        assert refused.value.setting == "runner"
        assert all(fact in str(refused.value) for fact in ("Model/Runner.py", "'Runner'"))


@pytest.mark.parametrize(
    "name", ["Model/Runer.py:Runner", "Model.Runner", "Model/Runner.py", "torch.nn.Linear"]
)
def test_a_wrong_name_is_reported_with_its_location(tmp_path: Path, name: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as error:
        files_of(project(tmp_path / "p", runner=name))
    messages.check(error.value)
    assert error.value.setting == "runner" and repr(name) in str(error.value)
    assert str(error.value.where).startswith("config.yaml:")


def test_a_syntax_error_is_reported_with_its_line(tmp_path: Path) -> None:
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


# --- sections -----------------------------------------------------------------------------------------

RUNNER = """{
  model: {class: Net/Net.py:Net, norm: "Net/Parts.py:norm",
    inner: [{class: torch.nn.ReLU}, {class: Net/Deep.py:Deep}]},
  losses: {a: {class: torch.nn.MSELoss}, b: {class: Losses.py:ring, inputs: [output.x]}},
  metrics: {hits: {class: Metrics.py:hits}}, visualize: Pictures.py:show, predicts: {x: output.x}}"""
DATASET = """{
  train: {clean: {class: Data/Sets.py:Clean, path: data/x.npy, title: "see notes.py: here"}},
  valid: {class: roost.Arrays, arrays: Data/Sets.py:load}, collate: Data/Sets.py:pad}"""
OPTIMIZERS = """{main: {class: torch.optim.SGD, lr: 0.1, scheduler: {
  class: torch.optim.lr_scheduler.ChainedScheduler,
  schedulers: [{class: torch.optim.lr_scheduler.StepLR, step_size: 2}]}}}"""
HOOKS = "[Hooks.py:One, {class: Hooks/Two.py:Two, every: 5}]"
FILES = {
    "Net/Net.py": "class Net: ...", "Net/Parts.py": "def norm(): ...", "Net/Deep.py": "class Deep: ...",
    "Losses.py": "def ring(): ...", "Metrics.py": "def hits(): ...", "Pictures.py": "def show(): ...",
    "Data/Sets.py": "class Clean: ...\ndef load(): ...\ndef pad(): ...", "Hooks.py": "class One: ...",
    "Hooks/Two.py": "class Two: ...",
}  # fmt: skip


def described(
    folder: Path,
    *,
    runner: str = RUNNER,
    dataset: str = DATASET,
    hooks: str = HOOKS,
    optimizers: str = OPTIMIZERS,
) -> Path:
    config = project(folder, runner=runner, dataset=dataset, hooks=hooks)
    # Of the template's, only the first line would be replaced.
    kept, *_ = config.read_text().partition("optimizers:")
    after = config.read_text().partition("optimizers:")[2].split("\n")[1:]
    rest = [line for i, line in enumerate(after) if any(not one.startswith(" ") for one in after[: i + 1])]
    config.write_text(kept + "\n".join([*rest, f"optimizers: {optimizers}", ""]))
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return config


def test_all_files_that_sections_name(tmp_path: Path) -> None:
    config = described(tmp_path / "p")
    assert {name for name in files_of(config) if not name.startswith("Analyze")} == set(FILES)
    settings = settings_of(config)
    assert format_classes(settings.runner).startswith(
        "Net/Net.py:Net, Net/Parts.py:norm, torch.nn.ReLU, Net/Deep.py:Deep"
    )
    assert (
        format_classes("A.py:A", "B.py:B", *settings.hooks)
        == "A.py:A, B.py:B, Hooks.py:One, Hooks/Two.py:Two"
    )


@pytest.mark.parametrize(
    ("section", "old", "new", "setting", "facts"),
    [
        ("runner", "Net.py:Net", "Nets.py:Net", "runner.model.class", ["Net/Nets.py"]),
        ("runner", "Parts.py:norm", "Parts.py:nrom", "runner.model.norm", ["Net/Parts.py", "'nrom'"]),
        ("runner", "Deep.py:Deep", "Deep.py:Deeep", "runner.model.inner.1.class", ["Net/Deep.py", "'Deeep'"]),
        ("runner", "torch.nn.ReLU", "os.system", "runner.model.inner.0.class", ["'os.system'"]),
        (
            "runner",
            "torch.nn.MSELoss",
            "MSELoss",
            "runner.losses.a.class",
            ["'MSELoss'"],
        ),
        ("runner", "Losses.py:ring", "Losses.py", "runner.losses.b.class", []),
        (
            "runner",
            "Pictures.py:show",
            "show",
            "runner.visualize",
            ["'show'"],
        ),
        (
            "dataset",
            "roost.Arrays",
            "torch.utils.data.TensorDataset",
            "dataset.valid.class",
            ["roost.Arrays"],
        ),
        ("dataset", "Sets.py:pad", "Sets.py:pads", "dataset.collate", ["Data/Sets.py", "'pads'"]),
        (
            "runner",
            "norm: ",
            "inputs: {class: torch.hub.load}, norm: ",
            "runner.model.inputs.class",
            [],
        ),
        ("runner", "Net/Parts.py", "../p/Net/Parts.py", "runner.model.norm", []),
        ("dataset", "roost.Arrays", "sklearn.datasets.fetch_openml", "dataset.valid.class", []),
        ("optimizers", "torch.optim.SGD", "os.system", "optimizers.main.class", ["'os.system'"]),
        ("optimizers", "torch.optim.SGD", "SGD", "optimizers.main.class", ["torch.optim.SGD"]),
        ("optimizers", "torch.optim.SGD", "Lion.py:Lion", "optimizers.main.class", ["Lion.py"]),
        (
            "optimizers",
            "torch.optim.lr_scheduler.StepLR",
            "StepLR",
            "optimizers.main.scheduler.schedulers.0.class",
            ["'StepLR'"],
        ),
        (
            "optimizers",
            "torch.optim.lr_scheduler.StepLR",
            "StepLR",
            "optimizers.main.scheduler.schedulers.0.class",
            ["torch.optim.lr_scheduler.StepLR"],
        ),
        ("hooks", "Two.py:Two", "Two.py:Tow", "hooks.1.class", ["Hooks/Two.py", "'Tow'"]),
        ("hooks", "Hooks.py:One", "Hooks", "hooks.0", ["'Hooks'"]),
    ],
)
def test_what_a_section_names_wrongly(
    section: str, old: str, new: str, setting: str, facts: list[str], tmp_path: Path, messages: Messages
) -> None:
    sections = {"runner": RUNNER, "dataset": DATASET, "hooks": HOOKS, "optimizers": OPTIMIZERS}
    text = sections[section]
    assert old in text
    config = described(tmp_path / "p", **{section: text.replace(old, new)})
    with pytest.raises(ConfigError) as caught:
        files_of(config)
    messages.check(caught.value.summary)  # what it proposes depends on what is loaded
    assert caught.value.setting == setting and all(fact in str(caught.value) for fact in facts)
    assert str(caught.value.where).startswith("config.yaml:")


@pytest.mark.parametrize("kind", [Settings, DlnestSettings])
def test_each_kind_of_package_is_read_as_such(tmp_path: Path, kind: type) -> None:
    config = dlnest_project(tmp_path / "p") if kind is DlnestSettings else project(tmp_path / "p")
    made = prepare_training(layers.load(config)).create("one")
    where = setting_locations(made)
    settings = parse_package_settings(
        made, made.settings, project=tmp_path, folder=str(made.path), where=where
    )
    assert type(settings) is kind
    assert made.path / "Model/Runner.py" in code_of(settings, made, where)
    (made.path / "Model/Runner.py").unlink()
    with pytest.raises(ConfigError):
        code_of(settings, made, where)


def test_overrides_follow_the_contract(tmp_path: Path) -> None:
    """In a package of DLNest's contract, ``seed`` is a key of the user."""
    made: PackageFolder = prepare_training(layers.load(dlnest_project(tmp_path / "p"))).create("one")
    values = with_overrides(made, made.settings, ["seed=4", "roost.seed=5"])
    settings = parse_package_settings(made, values, project=tmp_path, folder="", where=lambda key: None)
    assert (values["seed"], settings.seed) == (4, 5)
