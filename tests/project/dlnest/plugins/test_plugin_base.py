from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from roost.project.dlnest.plugins.plugin_base import DLNestPluginBase


class Mine(DLNestPluginBase):
    _NAME = "Mine"
    _config: ClassVar[dict[str, Any]] = {"a": 1, "b": 2}
    _defaultKeys: ClassVar[list[str]] = ["b"]


def test_what_a_plugin_reports_of_itself() -> None:
    assert (Mine.getName(), Mine.getDefaultConfig(), Mine.getFullConfig()) == (
        "Mine",
        {"b": 2},
        {"a": 1, "b": 2},
    )


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"plugins_config": {"Mine": {"a": 5}}}, 5), ({"plugins_config": {"Mine": {}}}, 1),
        ({"plugins_config": {}}, 1), ({"plugins_config": None}, 1), ({}, 1),
    ],
)  # fmt: skip
def test_a_setting_of_a_plugin(args: dict[str, Any], found: int) -> None:
    assert Mine.getArgs(SimpleNamespace(getArgs=lambda: args), "Mine", "a", 1) == found
