"""The plugin MailsNote, and send_mail, with a mail server of this machine that asks for TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from email import message_from_string
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from roost.config.dlnest.mail_password import VARIABLE
from roost.project.dlnest.plugins import send_mail
from roost.project.dlnest.plugins.mails_note import MailsNote
from tests.lab.notices.receivers import Mail, certificate
from tests.project.dlnest.projects import LIFE_CYCLE, load, package

pytestmark = pytest.mark.needs_program("openssl")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def server(own: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mail]:
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    monkeypatch.setenv(VARIABLE, "pass-w0rd")
    found = Mail(own, at_once=False)
    yield found
    found.close()


def project(tmp_path: Path, server: Mail, code: str = LIFE_CYCLE, **settings: Any) -> Any:
    config = {"username": "ada@here.org", "host": "127.0.0.1", "port": server.port, **settings}
    made = package(
        tmp_path, {"LifeCycle.py": code}, plugins=["MailsNote"], plugins_config={"MailsNote": config}
    )
    return load(made)


def letters(server: Mail) -> list[tuple[str, str, str]]:
    found = [message_from_string(one, policy=default) for one in server.letters]
    return [(one["Subject"], one["To"], one.get_content()) for one in found]


def test_an_email_at_the_end_with_the_results(tmp_path: Path, server: Mail) -> None:
    code = (
        LIFE_CYCLE
        + """
    def ATrain(self):
        pass

import DLNest.Plugins.MailsNote
DLNest.Plugins.MailsNote.DLNestPlugin.giveResultValues({"acc": 0.75})
"""
    )
    ended = project(tmp_path, server, code)
    ended.calls.after("ATrain")
    [(subject, to, text)] = letters(server)
    assert (subject, to) == ("Training finished", "ada@here.org")
    assert str(ended.package.path) in text and "acc: 0.75" in text
    words = {line.split()[0].lower() for line, is_secure in server.said if not is_secure}
    assert words == {"ehlo", "starttls"}  # the password comes after
    MailsNote.giveResultValues({})


def test_an_email_with_the_error(tmp_path: Path, server: Mail) -> None:
    failed = project(tmp_path, server, enable_list=["Aborting"])
    failed.calls.after("ATrain")
    try:
        raise ValueError("the loss is bad")
    except ValueError as error:
        failed.life_cycle.trainAborting(error)
    [(subject, _, text)] = letters(server)
    assert subject == "Training failed" and "ValueError: the loss is bad" in text


def test_tls_from_the_start(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    server = Mail(own, at_once=True)
    monkeypatch.setattr(send_mail, "_TLS_PORT", server.port)
    send_mail.sendSelfMail("ada@here.org", "pass-w0rd", "text", "a\nsubject", "127.0.0.1", server.port)
    server.close()
    [(subject, to, text)] = letters(server)
    assert (subject, to, text.strip()) == ("a subject", "ada@here.org", "text")
    assert all(is_secure for _, is_secure in server.said)


def test_no_password_without_a_trusted_certificate(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    server = Mail(own, at_once=False)
    with pytest.raises(ssl.SSLCertVerificationError):
        send_mail.sendSelfMail("ada@here.org", "pass-w0rd", "text", "subject", "127.0.0.1", server.port)
    server.close()
    assert not any(line.startswith("AUTH") for line, _ in server.said)


def test_a_server_that_cannot_be_reached_costs_one_line(
    tmp_path: Path, server: Mail, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        server.port = free.getsockname()[1]
    ended = project(tmp_path, server)
    ended.calls.after("ATrain")
    assert capsys.readouterr().out.startswith("plugin MailsNote: ATrain failed: ConnectionRefusedError")


@pytest.mark.parametrize("settings", [{}, {"username": ""}])
def test_what_is_missing_is_reported_at_the_start(
    tmp_path: Path,
    server: Mail,
    settings: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    begun = project(tmp_path, server, **settings)
    assert begun.begin()
    why = (
        "plugins_config.MailsNote: e-mails have no sender" if settings else "there is no password for e-mails"
    )
    assert capsys.readouterr().out.startswith(f"plugin MailsNote: BAll failed: ConfigError: {why}")
