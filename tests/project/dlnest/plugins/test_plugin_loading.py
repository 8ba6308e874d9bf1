from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import ConfigError, ContractError, RoostError
from roost.config.dlnest.bundled_plugins import BUNDLED_PLUGINS
from roost.project.dlnest.plugins.log_init import LogInit
from roost.project.dlnest.plugins.plugin_loading import load_plugins
from tests.messages import Messages
from tests.project.dlnest.projects import load, package

PLUGIN = """
from DLNest.Plugins.DLNestPluginBase import DLNestPluginBase as DPB

class DLNestPlugin(DPB):
    _NAME = "Mine"

    def BAll(self):
        self.greeting = DPB.getArgs(self, "Mine", "greeting", "hello"), DPB.getArgs(self, "Mine", "other", 1)
"""


def loaded(tmp_path: Path, *entries: str, **files: str) -> list[str]:
    made = package(tmp_path, {f"{name}.py": text for name, text in files.items()})
    return [one.__name__ for one in load_plugins(entries, made, lambda key: f"root_config.json ({key})")]


def test_bundled_plugins_by_name(tmp_path: Path) -> None:
    assert loaded(tmp_path, *BUNDLED_PLUGINS) == list(BUNDLED_PLUGINS)
    assert LogInit.getDefaultConfig() == {"level": "INFO"}
    assert LogInit.getName() == "LogInit" and set(LogInit.getFullConfig()) == {"level", "format", "datefmt"}


def test_a_plugin_by_its_absolute_path_is_the_copy(tmp_path: Path) -> None:
    """Its functions run before the project's, with the project's object."""
    made = package(
        tmp_path,
        {"Mine.py": PLUGIN},
        plugins=["/elsewhere/Mine.py"],
        plugins_config={"Mine": {"greeting": "ciao"}},
    )
    project = load(made)
    project.begin()
    assert project.life_cycle.greeting == ("ciao", 1)


@pytest.mark.parametrize(
    "entries",
    [
        ("LogInit", "LogInit"),
        ("LogInit", "Same.py"),
        ("LogINit",),
        ("Missing.py",),
        ("NoClass.py",),
    ],
)
def test_plugins_that_cannot_be_loaded(tmp_path: Path, entries: tuple[str, ...], messages: Messages) -> None:
    files = {"Same": "class DLNestPlugin: _NAME = 'LogInit'", "NoClass": "x = 1"}
    with pytest.raises((ConfigError, ContractError)) as refused:
        loaded(tmp_path, *entries, **files)
    assert isinstance(refused.value, RoostError) and str(refused.value.setting).startswith("plugins.")
    messages.check(refused.value)
