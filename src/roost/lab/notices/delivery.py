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
from roost.lab.notices.notice_text import Notice
from roost.lab.notices.receivers import MAIL, Receiver
from roost.lab.notices.service_payloads import KINDS, Asked

PAUSES = (2.0, 10.0)
"""Seconds before the second try, and before the third."""
_WAIT_SECONDS, _MOST_SECONDS = 10.0, 30.0
"""For an answer; for a whole try, however slowly answers come."""
_MOST_BYTES = 1 << 16
"""Of an answer."""
_MOST_SAID = 300
_WORTH_ANOTHER = (408, 425, 429)


class Failed(Exception):
    """It did not arrive.

    Args:
        text: Why, in one line.
        is_final: Whether another try would end likewise.
    """

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


def deliver(receiver: Receiver, notice: Notice, *, pauses: Sequence[float] = PAUSES) -> str:
    """Sends it, and tries again a few times if need be; gives why it did not arrive, empty if it did.

    Args:
        receiver: Who is told.
        notice: What.
        pauses: Seconds before each further try.
    """
    tries = 0
    for pause in (*pauses, None):
        tries += 1
        why, is_final = _tried(receiver, notice)
        if not why:
            return ""
        if is_final or pause is None:
            break
        time.sleep(pause)
    return f"{why} (tried {tries} times)" if tries > 1 else why


def _tried(receiver: Receiver, notice: Notice) -> tuple[str, bool]:
    """Why it did not arrive, without anything secret; and whether that is final."""
    try:
        with _deadline(_MOST_SECONDS):
            (_mail if receiver.kind == MAIL else _post)(receiver, notice)
        return "", False
    except Failed as error:
        why, is_final = str(error), error.is_final
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else ""
        why, is_final = f"the mail server said {error.smtp_code} {said}", error.smtp_code >= 500
    except smtplib.SMTPRecipientsRefused as error:
        why, is_final = f"the mail server takes nothing for {', '.join(error.recipients)}", True
    except smtplib.SMTPNotSupportedError as error:
        why, is_final = f"the mail server cannot do it: {error}", True
    except ssl.SSLCertVerificationError as error:
        why, is_final = f"its certificate is not trusted: {error.verify_message}", True
    except (OSError, http.client.HTTPException, ValueError) as error:
        why, is_final = f"it could not be reached: {error or type(error).__name__}", False
    except Exception as error:  # noqa: BLE001  - a defect must not keep all that comes later from being told
        why, is_final = f"it could not be sent ({type(error).__name__})", True
    return escape_control(" ".join(receiver.hide(why).split()))[:_MOST_SAID], is_final


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Ends what is inside: each wait of a socket is bounded, but there may be many. Only the main thread can.

    Raises:
        TimeoutError: The time is over.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- HTTP -------------------------------------------------------------------------------------------------


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What is secret in a URL or a header goes to nobody else."""

    def redirect_request(self, *args: Any) -> None:
        return None


def _post(receiver: Receiver, notice: Notice) -> None:
    kind = KINDS[receiver.kind]
    asked = Asked(notice, receiver.url, receiver.secret, time.time())
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"roost/{__version__}"}
    if receiver.token:
        headers["Authorization"] = f"Bearer {receiver.token}"
    body = json.dumps(kind.body(asked)).encode()
    request = urllib.request.Request(kind.url(asked), data=body, headers=headers, method="POST")
    here = is_loopback(urlsplit(receiver.url).hostname or "")
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({} if here else None))
    try:
        with opener.open(fullurl=request, timeout=_WAIT_SECONDS) as answer:
            said = answer.read(_MOST_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            is_final = error.code < 500 and error.code not in _WORTH_ANOTHER
            raise Failed(f"it answered {error.code} {error.reason}", is_final=is_final) from None
    except urllib.error.URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else Failed(str(error.reason)) from None
    if kind.code:
        _require_taken(said, kind.code)


def _require_taken(said: bytes, keys: Sequence[str]) -> None:
    """Raises `Failed` if an answer tells that it was not taken after all."""
    try:
        answer = dict(json.loads(said))
    except (ValueError, TypeError, RecursionError):
        raise Failed("it answered 200, but nothing of what that service answers") from None
    codes = [answer[key] for key in keys if key in answer]
    if not codes or codes[0] != 0:
        text = answer.get("errmsg") or answer.get("msg") or ""
        raise Failed(f"it did not take it: {codes[0] if codes else 'no code'} {text}")


# --- mail -------------------------------------------------------------------------------------------------


class _MailServer(smtplib.SMTP):
    """One to which nobody listens for ever: an answer may have any number of lines, and it is not known yet
    who says them."""

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _Answers(self, self.sock.makefile("rb"))
        return super().getreply()


class _MailServerTLS(_MailServer, smtplib.SMTP_SSL):
    pass


class _Answers:
    """What it says, as far as anybody wants to hear it."""

    def __init__(self, server: smtplib.SMTP, file: BinaryIO) -> None:
        self._server, self._file, self._left = server, file, _MOST_BYTES

    def readline(self, most: int) -> bytes:
        line = self._file.readline(most)
        self._left -= len(line)
        if self._left < 0:
            self._server.close()
            raise Failed("the mail server says more than anybody wants to hear", is_final=True)
        return line

    def close(self) -> None:
        self._file.close()


def _mail(receiver: Receiver, notice: Notice) -> None:
    host, port, name = receiver.host, receiver.smtp_port, os.uname().nodename
    context = ssl.create_default_context()
    server: smtplib.SMTP
    if receiver.tls == "tls":
        server = _MailServerTLS(host, port, name, timeout=_WAIT_SECONDS, context=context)
    else:
        server = _MailServer(host, port, name, timeout=_WAIT_SECONDS)
    try:
        if receiver.tls != "tls":
            server.starttls(context=context)
        if receiver.user:
            server.login(receiver.user, receiver.password)
        refused = server.send_message(_letter(receiver, notice), receiver.sender, receiver.to)
    finally:
        with contextlib.suppress(smtplib.SMTPException, OSError):
            server.quit()
    if refused:  # another try would tell the rest twice
        raise Failed(f"the mail server takes nothing for {', '.join(refused)}", is_final=True)


def _letter(receiver: Receiver, notice: Notice) -> EmailMessage:
    letter = EmailMessage()
    letter["From"], letter["To"] = receiver.sender, ", ".join(receiver.to)
    letter["Subject"] = notice.title
    letter["Date"] = formatdate(localtime=True)
    letter["Message-ID"] = f"<{notice.id}@roost.{_host_part(receiver.sender)}>"
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(notice.text)
    return letter


def _host_part(address: str) -> str:
    return address.rpartition("@")[2].strip("> ") or "localhost"
