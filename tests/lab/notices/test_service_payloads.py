from __future__ import annotations

import pytest

from roost.lab.notices.service_payloads import SERVICES, PayloadContext, truncate
from tests.lab.notices.receivers import NOTICE

TEXT = f"{NOTICE.title}\n{NOTICE.text}"
URL = "https://example.org/a/topic?key=1"
DINGTALK = "ZDW7c0CwVGyfdtcljWex%2BX1Z0vBCJPKMVfKUWcDa5B0%3D"
LARK = "XprR1de+0SSBnwWyU/4k6x2TL+Q2SJlM5NNEdAv7MWg="


def asked(kind: str, *, secret: str = "", text: str = NOTICE.text) -> tuple[str, dict[str, object]]:
    given = PayloadContext(NOTICE._replace(text=text), URL, secret, 1_700_000_000.25)
    return SERVICES[kind].url(given), SERVICES[kind].body(given)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("webhook", NOTICE._asdict()),
        ("slack", {"text": TEXT.replace("<", "&lt;").replace(">", "&gt;")}),
        ("dingtalk", {"msgtype": "text", "text": {"content": TEXT}}),
        ("lark", {"msg_type": "text", "content": {"text": TEXT}}),
        ("wecom", {"msgtype": "text", "text": {"content": TEXT}}),
    ],
)
def test_what_is_sent_where(kind: str, body: dict[str, object]) -> None:
    assert asked(kind) == (URL, body)


def test_ntfy_has_the_topic_in_the_body() -> None:
    body = {"topic": "topic", "title": NOTICE.title, "message": NOTICE.text, "priority": 4}
    assert asked("ntfy") == ("https://example.org/a/?key=1", body)


def test_dingtalk_and_lark_are_signed_as_their_documents_say() -> None:
    """By `openssl dgst -sha256 -hmac` over the same texts."""
    url, _ = asked("dingtalk", secret="SECabc")
    sign = "timestamp=1700000000250&sign=" + DINGTALK
    assert url == f"{URL}&{sign}"
    _, body = asked("lark", secret="SECabc")
    assert (body["timestamp"], body["sign"]) == ("1700000000", LARK)


def test_a_text_mentions_no_channel() -> None:
    """By what a program prints, which comes after `why`."""
    _, slack = asked("slack", text="<!channel> a")
    assert str(slack["text"]).endswith("&lt;!channel&gt; a")
    _, lark = asked("lark", text='<at user_id="all">a</at>')
    assert "<at" not in str(lark["content"]) and "< at user_id" in str(lark["content"])


@pytest.mark.parametrize(("kind", "most"), [("wecom", 2048), ("ntfy", 4096), ("slack", 40_000)])
def test_a_long_text_is_cut_to_what_the_service_takes(kind: str, most: int) -> None:
    _, body = asked(kind, text="ä€" * 30_000)
    (text,) = (
        value if isinstance(value, str) else value["content"]
        for key, value in body.items()
        if key in ("text", "message") and isinstance(value, str | dict)
    )
    assert most / 4 < len(text.encode()) < most and text.endswith("…")


def test_a_cut_never_halves_a_letter() -> None:
    assert truncate("äää", 6) == "äää" and truncate("ääää", 6) == "ä…" and truncate("\ud800", 6) == "?"
