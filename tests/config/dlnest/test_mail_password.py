from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.config.dlnest.mail_password import FILE, VARIABLE, mail_password, refuse_in_config
from tests.messages import Messages


def test_where_the_password_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "roost" / FILE
    with pytest.raises(ConfigError) as refused:
        mail_password()
    messages.check(refused.value)
    file.parent.mkdir()
    file.write_text("of the file\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError) as refused:
        mail_password()
    messages.check(refused.value)
    file.chmod(0o600)
    assert mail_password() == "of the file"
    monkeypatch.setenv(VARIABLE, "of the environment")
    assert mail_password() == "of the environment"


def test_a_password_in_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ConfigError) as refused:
        refuse_in_config({"MailsNote": {"password": "s3cret"}}, lambda key: "plugins_config.json:4")
    assert "s3cret" not in str(refused.value)
    messages.check(refused.value)


@pytest.mark.parametrize(
    "given", [{}, {"MailsNote": {"password": ""}}, {"MailsNote": None}, {"Other": {"password": 1}}]
)
def test_configs_without_one(given: dict[str, Any]) -> None:
    refuse_in_config(given, lambda key: None)
