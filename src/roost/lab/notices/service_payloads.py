"""The URL and JSON body that each service requires, in one table."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlsplit, urlunsplit

from roost.lab.notices.notice_events import END
from roost.lab.notices.notice_text import Notice

_NTFY_BYTES, _WECOM_BYTES, _MAX_BYTES = 3800, 2000, 15_000
"""The sizes that the services accept, minus the size of the JSON around the text."""


class PayloadContext(NamedTuple):
    """The values from which a service's body and URL are made."""

    notice: Notice
    url: str
    secret: str
    """Signs the request; empty: no signature."""
    now: float
    """Unix seconds."""


class NoticeService(NamedTuple):
    """The request format of one service."""

    body: Callable[[PayloadContext], dict[str, Any]]
    url: Callable[[PayloadContext], str] = lambda context: context.url
    code_keys: tuple[str, ...] = ()
    """The keys of a response with status 200 of which one holds the error code; 0 means accepted."""


def truncate(text: str, max_bytes: int = _MAX_BYTES) -> str:
    """Returns a text that has at most so many bytes of UTF-8, with an ellipsis where it was cut."""
    data = text.encode(errors="replace")
    return data.decode() if len(data) <= max_bytes else data[: max_bytes - 3].decode(errors="ignore") + "…"


def _text(context: PayloadContext, max_bytes: int = _MAX_BYTES) -> str:
    return truncate(f"{context.notice.title}\n{context.notice.text}", max_bytes)


def _slack(context: PayloadContext) -> dict[str, Any]:
    text = _text(context)
    for found, written in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
    ):  # else <!channel> notifies the whole channel
        text = text.replace(found, written)
    return {"text": text}


def _ntfy(context: PayloadContext) -> dict[str, Any]:
    topic = urlsplit(context.url).path.rpartition("/")[2]
    priority = 3 if context.notice.event == END else 4
    text = truncate(context.notice.text, _NTFY_BYTES)
    return {
        "topic": topic,
        "title": truncate(context.notice.title, 250),
        "message": text,
        "priority": priority,
    }


def _ntfy_url(context: PayloadContext) -> str:
    """Returns the server's URL: a JSON request has the topic in its body."""
    found = urlsplit(context.url)
    return urlunsplit(found._replace(path=found.path.rpartition("/")[0] + "/"))


def _dingtalk(context: PayloadContext) -> dict[str, Any]:
    return {"msgtype": "text", "text": {"content": _text(context)}}


def _dingtalk_url(context: PayloadContext) -> str:
    if not context.secret:
        return context.url
    at = str(int(context.now * 1000))
    sign = _signed(context.secret.encode(), f"{at}\n{context.secret}".encode())
    return f"{context.url}{'&' if '?' in context.url else '?'}timestamp={at}&sign={quote_plus(sign)}"


def _lark(context: PayloadContext) -> dict[str, Any]:
    text = _text(context).replace("<at", "< at")  # else <at user_id="all"> notifies the whole group
    body: dict[str, Any] = {"msg_type": "text", "content": {"text": text}}
    if context.secret:
        at = str(int(context.now))
        body |= {"timestamp": at, "sign": _signed(f"{at}\n{context.secret}".encode(), b"")}
    return body


def _wecom(context: PayloadContext) -> dict[str, Any]:
    return {"msgtype": "text", "text": {"content": _text(context, _WECOM_BYTES)}}


def _signed(key: bytes, text: bytes) -> str:
    return base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


SERVICES: dict[str, NoticeService] = {
    "webhook": NoticeService(lambda context: context.notice._asdict()),
    "slack": NoticeService(_slack),
    "ntfy": NoticeService(_ntfy, url=_ntfy_url),
    "dingtalk": NoticeService(_dingtalk, url=_dingtalk_url, code_keys=("errcode",)),
    "lark": NoticeService(_lark, code_keys=("code", "StatusCode")),
    "wecom": NoticeService(_wecom, code_keys=("errcode",)),
}
