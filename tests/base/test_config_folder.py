"""Where a user's own files for roost are."""

from __future__ import annotations

import pytest

from roost.base.config_folder import config_folder


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}, "/x/roost"),
        ({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}, "/h/.config/roost"),
        ({"HOME": "/h"}, "/h/.config/roost"),
    ],
)
def test_the_folder_follows_the_environment(env: dict[str, str], found: str) -> None:
    assert config_folder(env) == found
