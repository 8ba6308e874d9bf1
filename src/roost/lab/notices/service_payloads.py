"""What each service wants to be sent: one table."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlsplit, urlunsplit

from roost.lab.notices.notice_events import END
from roost.lab.notices.notice_text import Notice

_NTFY_BYTES, _WECOM_BYTES, _MOST_BYTES = 3800, 2000, 15_000
"""What the services take, less what is around it."""


class Asked(NamedTuple):
    """What a body and a URL are made for."""

    notice: Notice
    url: str
    secret: str
    """Empty: it is not signed."""
    now: float
    """Unix seconds."""


class Kind(NamedTuple):
    """One service."""

    body: Callable[[Asked], dict[str, Any]]
    url: Callable[[Asked], str] = lambda asked: asked.url
    code: tuple[str, ...] = ()
    """Keys of its answer, under one of which it tells what went wrong, though it says 200; 0 is well."""


def cut(text: str, most: int = _MOST_BYTES) -> str:
    """As much of a text as so many bytes hold."""
    data = text.encode(errors="replace")
    return data.decode() if len(data) <= most else data[: most - 3].decode(errors="ignore") + "…"


def _text(asked: Asked, most: int = _MOST_BYTES) -> str:
    return cut(f"{asked.notice.title}\n{asked.notice.text}", most)


def _slack(asked: Asked) -> dict[str, Any]:
    text = _text(asked)
    for found, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):  # else <!channel> calls everybody
        text = text.replace(found, written)
    return {"text": text}


def _ntfy(asked: Asked) -> dict[str, Any]:
    topic = urlsplit(asked.url).path.rpartition("/")[2]
    priority = 3 if asked.notice.event == END else 4
    text = cut(asked.notice.text, _NTFY_BYTES)
    return {"topic": topic, "title": cut(asked.notice.title, 250), "message": text, "priority": priority}


def _ntfy_url(asked: Asked) -> str:
    """The server's: with JSON the topic stands in the body."""
    found = urlsplit(asked.url)
    return urlunsplit(found._replace(path=found.path.rpartition("/")[0] + "/"))


def _dingtalk(asked: Asked) -> dict[str, Any]:
    return {"msgtype": "text", "text": {"content": _text(asked)}}


def _dingtalk_url(asked: Asked) -> str:
    if not asked.secret:
        return asked.url
    at = str(int(asked.now * 1000))
    sign = _signed(asked.secret.encode(), f"{at}\n{asked.secret}".encode())
    return f"{asked.url}{'&' if '?' in asked.url else '?'}timestamp={at}&sign={quote_plus(sign)}"


def _lark(asked: Asked) -> dict[str, Any]:
    text = _text(asked).replace("<at", "< at")  # else <at user_id="all"> calls everybody
    body: dict[str, Any] = {"msg_type": "text", "content": {"text": text}}
    if asked.secret:
        at = str(int(asked.now))
        body |= {"timestamp": at, "sign": _signed(f"{at}\n{asked.secret}".encode(), b"")}
    return body


def _wecom(asked: Asked) -> dict[str, Any]:
    return {"msgtype": "text", "text": {"content": _text(asked, _WECOM_BYTES)}}


def _signed(key: bytes, text: bytes) -> str:
    return base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


KINDS: dict[str, Kind] = {
    "webhook": Kind(lambda asked: asked.notice._asdict()),
    "slack": Kind(_slack),
    "ntfy": Kind(_ntfy, url=_ntfy_url),
    "dingtalk": Kind(_dingtalk, url=_dingtalk_url, code=("errcode",)),
    "lark": Kind(_lark, code=("code", "StatusCode")),
    "wecom": Kind(_wecom, code=("errcode",)),
}
