"""Sends one notice to one receiver: by mail, or as JSON over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import smtplib
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from email.message import EmailMessage
from email.utils import formatdate
from types import FrameType
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from roost import __version__
from roost.base.system.loopback import is_loopback
from roost.base.text.terminal_text import escape_control
from roost.lab.notices import notice_events
from roost.lab.notices.notice_text import Notice
from roost.lab.notices.receivers import MAIL, Receiver
from roost.lab.notices.service_payloads import SERVICES, PayloadContext

RETRY_PAUSES = (2.0, 10.0)
"""Seconds before the second try, and before the third."""
_RESPONSE_SECONDS, _ATTEMPT_SECONDS = 10.0, 30.0
"""The limit for one response; for a whole try, however slowly its responses arrive."""
_MAX_RESPONSE_BYTES = 1 << 16
_MAX_REASON_LENGTH = 300
_RETRIED_STATUSES = (408, 425, 429)
"""HTTP statuses below 500 after which another try may succeed."""


class DeliveryError(Exception):
    """A notice was not delivered.

    Args:
        text: The reason, in one line.
        is_final: Whether another try would fail too.
    """

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


def deliver(receiver: Receiver, notice: Notice, *, pauses: Sequence[float] = RETRY_PAUSES) -> str:
    """Sends a notice, with retries; returns the reason of a failure, empty if the notice was delivered.

    Args:
        receiver: Where to send it.
        notice: The notice.
        pauses: Seconds before each further try.
    """
    tries = 0
    for pause in (*pauses, None):
        tries += 1
        why, is_final = _try_once(receiver, notice)
        if not why:
            return ""
        if is_final or pause is None:
            break
        time.sleep(pause)
    return f"{why} (tried {tries} times)" if tries > 1 else why


def _try_once(receiver: Receiver, notice: Notice) -> tuple[str, bool]:
    """Returns the reason of a failure, without secrets, and whether it is final; an empty reason on
    success."""
    try:
        with _deadline(_ATTEMPT_SECONDS):
            (_mail if receiver.kind == MAIL else _post)(receiver, notice)
        return "", False
    except DeliveryError as error:
        why, is_final = str(error), error.is_final
    except smtplib.SMTPResponseException as error:
        text = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else ""
        why, is_final = f"the mail server answered {error.smtp_code} {text}", error.smtp_code >= 500
    except smtplib.SMTPRecipientsRefused as error:
        why, is_final = f"the mail server accepts no mail for {', '.join(error.recipients)}", True
    except smtplib.SMTPNotSupportedError as error:
        why, is_final = f"the mail server lacks a required feature: {error}", True
    except ssl.SSLCertVerificationError as error:
        trusted = receiver.certificates or os.environ.get("SSL_CERT_FILE") or "those of the system"
        what = f"the certificate of the receiver is not trusted: {error.verify_message}"
        why = f"{what}; trusted are {trusted} (set `certificates` of the receiver to a PEM file)"
        is_final = True
    except (OSError, http.client.HTTPException, ValueError) as error:
        why, is_final = f"the receiver could not be reached: {error or type(error).__name__}", False
    except Exception as error:  # noqa: BLE001  - a defect must not block all later notices
        why, is_final = f"the notice could not be sent ({type(error).__name__})", True
    return escape_control(" ".join(receiver.redact(why).split()))[:_MAX_REASON_LENGTH], is_final


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Limits the total time of a block: each wait of a socket is bounded, but a block may have many.

    The limit holds in the main thread only, because it is a signal.

    Raises:
        TimeoutError: The block took longer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no complete response within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _tls_context(receiver: Receiver) -> ssl.SSLContext:
    own = notice_events.settings_path().parent / receiver.certificates
    return ssl.create_default_context(cafile=own if receiver.certificates else None)


# --- HTTP -------------------------------------------------------------------------------------------------


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, so that secrets in a URL or a header reach no other server."""

    def redirect_request(self, *args: Any) -> None:
        return None


def _post(receiver: Receiver, notice: Notice) -> None:
    service = SERVICES[receiver.kind]
    context = PayloadContext(notice, receiver.url, receiver.secret, time.time())
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"roost/{__version__}"}
    if receiver.token:
        headers["Authorization"] = f"Bearer {receiver.token}"
    body = json.dumps(service.body(context)).encode()
    request = urllib.request.Request(service.url(context), data=body, headers=headers, method="POST")
    is_local = is_loopback(urlsplit(receiver.url).hostname or "")
    own = [urllib.request.HTTPSHandler(context=_tls_context(receiver))] if receiver.certificates else []
    proxies = urllib.request.ProxyHandler({} if is_local else None)
    opener = urllib.request.build_opener(_NoRedirect, proxies, *own)
    try:
        with opener.open(fullurl=request, timeout=_RESPONSE_SECONDS) as response:
            data = response.read(_MAX_RESPONSE_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            is_final = error.code < 500 and error.code not in _RETRIED_STATUSES
            raise DeliveryError(
                f"the service answered {error.code} {error.reason}", is_final=is_final
            ) from None
    except urllib.error.URLError as error:
        raise (
            error.reason if isinstance(error.reason, OSError) else DeliveryError(str(error.reason))
        ) from None
    if service.code_keys:
        _require_accepted(data, service.code_keys)


def _require_accepted(data: bytes, keys: Sequence[str]) -> None:
    """Raises `DeliveryError` if a response with status 200 reports a failure."""
    try:
        response = dict(json.loads(data))
    except (ValueError, TypeError, RecursionError):
        raise DeliveryError("the response has status 200, but is not one of that service") from None
    codes = [response[key] for key in keys if key in response]
    if not codes or codes[0] != 0:
        text = response.get("errmsg") or response.get("msg") or ""
        raise DeliveryError(
            f"the service did not accept the notice: {codes[0] if codes else 'no code'} {text}"
        )


# --- mail -------------------------------------------------------------------------------------------------


class _MailServer(smtplib.SMTP):
    """An SMTP client that bounds the responses it reads: a response may have any number of lines, and the
    server is not authenticated yet."""

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _BoundedReader(self, self.sock.makefile("rb"))
        return super().getreply()


class _MailServerTLS(_MailServer, smtplib.SMTP_SSL):
    pass


class _BoundedReader:
    """The lines of a server's responses, up to `_MAX_RESPONSE_BYTES` in all."""

    def __init__(self, server: smtplib.SMTP, file: BinaryIO) -> None:
        self._server, self._file, self._remaining = server, file, _MAX_RESPONSE_BYTES

    def readline(self, limit: int) -> bytes:
        line = self._file.readline(limit)
        self._remaining -= len(line)
        if self._remaining < 0:
            self._server.close()
            what = f"the mail server's responses are longer than {_MAX_RESPONSE_BYTES} bytes"
            raise DeliveryError(what, is_final=True)
        return line

    def close(self) -> None:
        self._file.close()


def _mail(receiver: Receiver, notice: Notice) -> None:
    host, port, name = receiver.host, receiver.smtp_port, os.uname().nodename
    context = _tls_context(receiver)
    server: smtplib.SMTP
    if receiver.tls == "tls":
        server = _MailServerTLS(host, port, name, timeout=_RESPONSE_SECONDS, context=context)
    else:
        server = _MailServer(host, port, name, timeout=_RESPONSE_SECONDS)
    try:
        if receiver.tls != "tls":
            server.starttls(context=context)
        if receiver.user:
            server.login(receiver.user, receiver.password)
        refused = server.send_message(_mail_message(receiver, notice), receiver.sender, receiver.to)
    finally:
        with contextlib.suppress(smtplib.SMTPException, OSError):
            server.quit()
    if refused:  # another try would send the notice to the other addresses twice
        raise DeliveryError(f"the mail server accepts no mail for {', '.join(refused)}", is_final=True)


def _mail_message(receiver: Receiver, notice: Notice) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"] = receiver.sender, ", ".join(receiver.to)
    message["Subject"] = notice.title
    message["Date"] = formatdate(localtime=True)
    message["Message-ID"] = f"<{notice.id}@roost.{_host_part(receiver.sender)}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(notice.text)
    return message


def _host_part(address: str) -> str:
    return address.rpartition("@")[2].strip("> ") or "localhost"
