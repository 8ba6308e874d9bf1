"""The URL of a store as a user types it."""

from __future__ import annotations

import os
from pathlib import Path

from roost.config.values.store_url import StoreUrl, parse_url


def typed_url(text: str, *, setting: str = "URL") -> StoreUrl:
    """Returns the URL of a store as a user has typed it: a relative path is one of the current folder.

    Raises:
        ConfigError: It is no URL of a store, or holds a credential.
    """
    if "://" not in text and text.strip():
        text = str(Path.cwd() / os.path.expanduser(text))  # noqa: PTH111  - never raises
    return parse_url(text, setting=setting)
