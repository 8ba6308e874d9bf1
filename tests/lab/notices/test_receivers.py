from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost.base.errors import ConfigError, NotFound, Refused
from roost.lab.notices import receivers
from roost.lab.notices.receivers import Receiver
from tests.messages import Messages

MAIL = "kind: mail, host: mail.org, sender: me@mail.org, to: [you@mail.org]"


def written(folder: Path, text: str, rights: int = 0o600) -> Path:
    file = folder / "notices.yaml"
    file.write_text(text)
    file.chmod(rights)
    return file


def test_valid_settings(tmp_path: Path) -> None:
    text = f"""
        events: [fail, stall]
        least_minutes: 10
        receivers:
          phone: {{kind: ntfy, url: "https://ntfy.sh/a-topic", token: tk_1}}
          mail: {{{MAIL}, user: me, password: p, tls: tls}}
    """
    found = receivers.read_settings(written(tmp_path, text))
    assert (found.events, found.least_minutes) == (("fail", "stall"), 10)
    assert found.receivers["phone"] == Receiver(kind="ntfy", url="https://ntfy.sh/a-topic", token="tk_1")
    assert [one.address for one in found.receivers.values()] == [
        "https://ntfy.sh/***",
        "mail.org:465 (tls) for you@mail.org",
    ]


@pytest.mark.parametrize("rights", [0o644, 0o640, 0o606, 0o620])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, rights: int, messages: Messages) -> None:
    file = written(tmp_path, "receivers: {}", rights)
    with pytest.raises(Refused) as refused:
        receivers.read_settings(file)
    assert f"`chmod 600 {file}`" in str(refused.value)
    messages.check(refused.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path, messages: Messages) -> None:
    file = written(tmp_path, "receivers: {}")
    os.chown(file, 4711, -1)
    with pytest.raises(Refused, match="4711") as refused:
        receivers.read_settings(file)
    messages.check(refused.value)


def test_a_missing_file_is_reported(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound, match="`roost notices --help`") as refused:
        receivers.read_settings(tmp_path / "notices.yaml")
    messages.check(refused.value)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("receivers: [", "notices.yaml"),
        ("receivers: {a: {kind: slack, url: s3cret, urk: 1}}", "receivers.a.urk"),
        ("receivers: {a: {kind: slack, ulr: s3cret}}", "'url'"),
        ("recievers: {}", "recievers"),
        (
            "receivers: {a: {kind: slack, url: 1}}",
            "receivers.a.url: expected a text, and this is a whole number",
        ),
        ("receivers:\n  a: 7\n", "notices.yaml:2"),
        ("receivers: {}\nleast_minutes: s3cret", "least_minutes: expected a number"),
        ("events: [ends]\nreceivers: {}", "events"),
        ("receivers: {a: {kind: slac, url: s3cret}}", "'slack'"),
        ("receivers: {a: {kind: slack}}", "receivers.a.url"),
        ("receivers: {a: {kind: slack, url: s3cret}}", "receivers.a.url"),
        ("receivers: {a: {kind: slack, url: 'file:///s3cret'}}", "receivers.a"),
        ("receivers: {a: {kind: slack, url: 'https://x:y/s3cret'}}", "receivers.a"),
        ("receivers: {a: {kind: slack, url: 'https://x/s3cret\\nHost: y'}}", "receivers.a"),
        ("receivers: {a: {kind: slack, url: 'http://x.org/s3cret'}}", "receivers.a"),
        ("receivers: {a: {kind: slack, url: 'http://127.evil.org/s3cret'}}", "receivers.a"),
        ("receivers: {a: {kind: slack, url: 'https://u:s3cret@x.org/'}}", "receivers.a"),
        (
            "receivers:\n  a:\n    kind: ntfy\n    url: https://x/y\n    token: |\n      s3cret\n",
            "a.token",
        ),
        ("receivers: {a: {kind: slack, url: 'https://x.org/s3cretä'}}", "receivers.a.url"),
        ("receivers: {a: {kind: ntfy, url: 'https://x/y', token: s3cret–}}", "ASCII"),
        ("receivers: {a: {kind: mail, password: s3cret}}", "receivers.a.host"),
        (f"receivers: {{a: {{{MAIL}, tls: no, password: s3cret}}}}", "receivers.a"),
        (f"receivers: {{a: {{{MAIL}, port: 70000}}}}", "receivers.a"),
        ("receivers: {a: {kind: mail, host: h, sender: me, to: [a@b]}}", "receivers.a.sender"),
    ],
)
def test_errors_quote_no_secret(tmp_path: Path, text: str, wrong: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as raised:
        receivers.read_settings(written(tmp_path, text))
    assert wrong in str(raised.value) and "s3cret" not in str(raised.value)
    messages.check(raised.value)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("at https://x.org/hook/s3cret-1?key=s3cret-2", "at ***"),
        ("s3cret-1 and s3cret-2", "*** and ***"),
        ("https: x.org said no", "https: x.org said no"),
        ("t0ken-of-mine", "***"),
    ],
)
def test_secrets_are_redacted(text: str, hidden: str) -> None:
    url = "https://x.org/hook/s3cret-1?key=s3cret-2"
    assert Receiver(kind="webhook", url=url, token="t0ken-of-mine").redact(text) == hidden


SLACK = "receivers:\n  team:\n    kind: slack\n    url: https://hooks.slack.com/services/T/B/s3cret\n"


@pytest.mark.parametrize(
    ("text", "setting", "line"),
    [
        ("", None, 1),
        ("- a\n", None, 1),
        ("receivers:\n\tteam: s3cret\n", None, 2),
        ("receivers:\n  team: {kind: slack, url: *s3cret}\n", None, 2),
        ("receivers:\n  team: {kind: slack, url: !s3cret x}\n", None, 2),
        (SLACK + "receivers: {}\n", None, 5),
        ("events: [fail]\n", "receivers", 1),
        ("events: [fail]\nreceivers: [s3cret]\n", "receivers", 2),
        ("receivers:\n  team:\n", "receivers.team", 2),
        ("receivers:\n  team:\n    url: https://x.org/s3cret\n", "receivers.team.kind", 2),
        (SLACK.replace("slack\n", "slak\n"), "receivers.team.kind", 3),
        (SLACK.replace("https", "http"), "receivers.team.url", 4),
        (SLACK + "    host: s3cret\n", "receivers.team.host", 5),
        ("receivers:\n  m:\n    kind: mail\n    port: s3cret\n", "receivers.m.port", 4),
        (f"receivers:\n  m: {{{MAIL}}}\n  n: {{{MAIL}, token: s3cret}}\n", "receivers.n.token", 3),
        (SLACK + "events: fail\n", "events", 5),
        (SLACK + "events:\n- fail\n- ended\n", "events", 7),
        (SLACK + "least_minutes: -3\n", "least_minutes", 5),
        (SLACK + "least_minutes: .nan\n", "least_minutes", 5),
    ],
)
def test_each_error_has_its_line_and_a_fix(
    tmp_path: Path, text: str, setting: str | None, line: int, messages: Messages
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        receivers.read_settings(file)
    assert raised.value.setting == setting and str(raised.value.where) == f"{file}:{line}"
    assert raised.value.fix and "s3cret" not in str(raised.value) and "`, got" not in str(raised.value)
    messages.check(raised.value)
