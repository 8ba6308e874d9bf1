"""The URL of a store as a user types it."""

from __future__ import annotations

from pathlib import Path

from roost.base.errors import ConfigError
from roost.base.text.typed_path import typed_path
from roost.config.values.store_url import LIBRARIES, StoreUrl, parse_url


def typed_url(text: str, *, setting: str = "URL") -> StoreUrl:
    """Returns the URL of a store as a user has typed it: a relative path is one of the current folder.

    Raises:
        ConfigError: It is no URL of a store, or holds a credential.
    """
    scheme, colon, _ = text.strip().partition(":")
    if colon and scheme in LIBRARIES and "://" not in text:
        fix = f"write {scheme}://BUCKET/FOLDER; a folder of this name: ./{text.strip()}"
        raise ConfigError("is neither a URL nor a folder", setting=setting, received=text, fix=fix)
    if "://" not in text and text.strip():
        text = str(Path.cwd() / typed_path(text))
    return parse_url(text, setting=setting)
