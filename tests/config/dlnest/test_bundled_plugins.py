from __future__ import annotations

import pytest

from roost.config.dlnest.bundled_plugins import is_path


@pytest.mark.parametrize(("plugin", "expected"), [("LogInit", False), ("/a/b", True), ("Mine.py", True)])
def test_which_plugins_are_paths(plugin: str, expected: bool) -> None:
    assert is_path(plugin) is expected
