"""Sends one e-mail over TLS, from a user to itself."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formataddr

_TLS_PORT = 465
"""The port at which a server begins with TLS; at others the connection is upgraded before the password."""
_TIMEOUT_SECONDS = 30.0


def sendSelfMail(
    username: str,
    password: str,
    message: str,
    subject: str,
    host: str,
    port: int = _TLS_PORT,
    fromTitle: str = "roost",
    toTitle: str = "",
) -> None:
    """Sends an e-mail from an account to the same account.

    Args:
        username: The address of the account.
        password: Its password; sent only over TLS, with the server's certificate checked.
        message: The text.
        subject: The subject.
        host: The name of the SMTP server.
        port: Its port: 465 for TLS from the start; 587 or another for STARTTLS.
        fromTitle: The name of the sender.
        toTitle: The name of the receiver.

    Raises:
        OSError: The server cannot be reached, or its certificate is not valid.
        smtplib.SMTPException: The server has no TLS, or does not accept the password or the e-mail.
    """
    mail = EmailMessage()
    mail["Subject"] = subject.replace("\n", " ")
    mail["From"], mail["To"] = formataddr((fromTitle, username)), formataddr((toTitle, username))
    mail.set_content(message)
    context = ssl.create_default_context()
    connection: smtplib.SMTP
    if port == _TLS_PORT:
        connection = smtplib.SMTP_SSL(host, port, timeout=_TIMEOUT_SECONDS, context=context)
    else:
        connection = smtplib.SMTP(host, port, timeout=_TIMEOUT_SECONDS)
    with connection:
        if port != _TLS_PORT:
            connection.starttls(context=context)
        connection.login(username, password)
        connection.send_message(mail)
