"""The plugins that come with roost, and the entries of ``plugins`` in a config of DLNest's contract."""

from __future__ import annotations

from collections.abc import Sequence

from roost.base.errors import ConfigError
from roost.base.text.suggestions import did_you_mean
from roost.config.section_schema import Where

BUNDLED = {
    "LogInit": "log_init",
    "AutoTensorboardScalar": "auto_tensorboard_scalar",
    "SimpleCMDVisualize": "simple_cmd_visualize",
    "MailsNote": "mails_note",
}
"""The modules of roost's own plugins, by their names in a config."""


def is_path(plugin: str) -> bool:
    """Whether an entry of ``plugins`` is the path of a file; others are names of bundled plugins."""
    return "/" in plugin or plugin.endswith(".py")


def require_known(plugins: Sequence[str], where: Where) -> None:
    """Checks that each entry of ``plugins`` is a path or the name of a bundled plugin.

    Raises:
        ConfigError: One is neither.
    """
    for number, entry in enumerate(plugins):
        if entry not in BUNDLED and not is_path(entry):
            key = f"plugins.{number}"
            raise ConfigError(
                "there is no such plugin",
                setting=key,
                received=entry,
                where=where(key),
                fix=f"{did_you_mean(entry, BUNDLED)}there are {', '.join(BUNDLED)}; give another by its path",
            )
