"""The plugin MailsNote: an e-mail when a run ends or fails."""

from __future__ import annotations

import traceback
from typing import Any, ClassVar

from roost.base.errors import ConfigError
from roost.config.dlnest.mail_password import mail_password
from roost.project.dlnest.plugins.plugin_base import DLNestPluginBase
from roost.project.dlnest.plugins.send_mail import sendSelfMail


class MailsNote(DLNestPluginBase):
    """Sends an e-mail on the events of ``enable_list``, from ``username`` to itself over TLS, on rank 0.

    The password comes from the environment variable ``ROOST_MAIL_PASSWORD``, else from the file
    ``mail_password`` in the user's config folder. A config must not have it.
    """

    _NAME = "MailsNote"
    _config: ClassVar[dict[str, Any]] = {
        "enable_list": ["Aborting", "TrainFinish"],
        "username": "",
        "host": "",
        "port": 465,
    }
    _defaultKeys: ClassVar[list[str]] = ["enable_list", "username", "host"]
    _results: ClassVar[dict[str, Any]] = {}

    @classmethod
    def giveResultValues(cls, resultsDict: dict[str, Any]) -> None:
        """Takes the results that the e-mail at the end of the training shall have."""
        cls._results = resultsDict

    def BAll(self: Any) -> None:
        """Checks that e-mails can be sent, before a long run."""
        if self._status.rank in (-1, 0) and not self._status.isAnalyzing():
            _settings(self)
            mail_password()

    def trainAborting(self: Any, exception: BaseException) -> None:
        """Sends the traceback of the error that ended the training."""
        text = "".join(traceback.format_exception(exception))
        _send(self, "Aborting", "Training failed", f"{self.getArgs()['root_file_path']}\n\n{text}")

    def ATrain(self: Any) -> None:
        """Sends the results of the training."""
        results = "".join(f"\n{name}: {value}" for name, value in MailsNote._results.items())
        _send(self, "TrainFinish", "Training finished", f"{self.getArgs()['root_file_path']}\n{results}")

    def custom(self: Any, message: str, subject: str) -> None:
        """Sends an e-mail of the project's own: ``DLNestPlugin.custom(self, message, subject)``."""
        _send(self, None, subject, message)


DLNestPlugin = MailsNote


def _send(target: Any, event: str | None, subject: str, message: str) -> None:
    """Sends an e-mail if the config enables this event; None: always."""
    enabled, username, host, port = _settings(target)
    if target._status.rank in (-1, 0) and (event is None or event in enabled):
        sendSelfMail(username, mail_password(), message, subject, host, int(port))


def _settings(target: Any) -> list[Any]:
    """Returns the values of the settings, in the order of ``_config``.

    Raises:
        ConfigError: There is no sender or no server.
    """
    found = [
        DLNestPluginBase.getArgs(target, MailsNote._NAME, key, default)
        for key, default in MailsNote._config.items()
    ]
    if not found[1] or not found[2]:
        raise ConfigError(
            "e-mails have no sender or no server",
            setting=f"plugins_config.{MailsNote._NAME}",
            fix="give username and host",
        )
    return found
