"""The entries of ``plugins`` in a config of DLNest's contract: names of the plugins that come with roost, and
paths of files."""

from __future__ import annotations

from roost.base.errors import ConfigError
from roost.base.text.suggestions import did_you_mean
from roost.config.section_schema import Where

BUNDLED_PLUGINS = {
    "LogInit": "log_init",
    "AutoTensorboardScalar": "auto_tensorboard_scalar",
    "SimpleCMDVisualize": "simple_cmd_visualize",
    "MailsNote": "mails_note",
}
"""The modules of roost's own plugins, which a config names without a path."""
PLUGIN_CLASS = "DLNestPlugin"
"""The class in the file of a plugin."""


def is_path(plugin: str) -> bool:
    """Whether an entry of ``plugins`` is the path of a file; others are names of bundled plugins."""
    return "/" in plugin or plugin.endswith(".py")


def no_plugin_error(entry: str, key: str, where: Where) -> ConfigError:
    """Returns the error of an entry of ``plugins`` that is neither the path of a file nor a known name."""
    known = f"{did_you_mean(entry, BUNDLED_PLUGINS)}there are {', '.join(BUNDLED_PLUGINS)}"
    return ConfigError(
        "there is no such plugin",
        setting=key,
        received=entry,
        where=where(key),
        fix=f"{known}; give another by its path",
    )


def same_plugin_error(name: str, entries: tuple[str, str], key: str, where: Where) -> ConfigError:
    """Returns the error of two entries of ``plugins``, the second of which is at ``key``."""
    return ConfigError(
        f"two plugins have the name {name}: {' and '.join(entries)}",
        setting=key,
        where=where(key),
        fix="name each plugin once, or change the `_NAME` of one",
    )
