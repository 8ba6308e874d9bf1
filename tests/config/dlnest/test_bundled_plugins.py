from __future__ import annotations

import pytest

from roost.base.errors import ConfigError
from roost.config.dlnest.bundled_plugins import BUNDLED, is_path, require_known


@pytest.mark.parametrize(("plugin", "expected"), [("LogInit", False), ("/a/b", True), ("Mine.py", True)])
def test_which_plugins_are_paths(plugin: str, expected: bool) -> None:
    assert is_path(plugin) is expected


def test_a_name_must_be_that_of_a_bundled_plugin() -> None:
    require_known([*BUNDLED, "Mine.py", "./Plugins/Mine"], lambda key: None)
    with pytest.raises(ConfigError, match="did you mean 'LogInit'") as refused:
        require_known(["MailsNote", "LogInt"], lambda key: f"root.json ({key})")
    assert (refused.value.setting, refused.value.where) == ("plugins.1", "root.json (plugins.1)")
