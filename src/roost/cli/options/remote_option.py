"""`--remote`: the remote copy of a new package."""

from __future__ import annotations

import json
from typing import Any

import click

remote_option = click.option(
    "--remote",
    metavar="URL",
    help="Upload the package behind the run: s3://bucket/runs, a folder, ...; short for remote.url.",
)
"""To be read by `take_remote`."""


def take_remote(options: dict[str, Any]) -> str | None:
    """Removes ``--remote`` from a command's options and returns its URL; None without it.

    Raises:
        ConfigError: It is no URL of a store, or holds a credential, which no package must have.
    """
    url = options.pop("remote")
    if url is None:
        return None
    from roost.operations.remote_copies.typed_url import typed_url

    return typed_url(url, setting="--remote").text


def remote_override(url: str | None) -> tuple[str, ...]:
    """Returns the override of the setting for which ``--remote`` is short."""
    return () if url is None else (f"roost.remote.url={json.dumps(url, ensure_ascii=False)}",)
