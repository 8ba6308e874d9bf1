from __future__ import annotations

import socket
import threading
from email import message_from_string
from email.policy import default
from pathlib import Path

import msgspec
import pytest

from roost.lab.notices import delivery
from roost.lab.notices.receivers import Receiver
from tests.lab.notices.receivers import NOTICE, Mail, Web, certificate
from tests.messages import Messages


def test_a_webhook_gets_all_fields(web: Web) -> None:
    assert delivery.deliver(web.receiver(token="t0ken"), NOTICE) == ""
    (asked,) = web.asked
    assert asked.body == NOTICE._asdict() and asked.path == "/hook/s3cret-path"
    assert asked.headers["Authorization"] == "Bearer t0ken"


@pytest.mark.parametrize(("status", "tries"), [(500, 3), (429, 3), (404, 1), (401, 1)])
def test_an_error_is_tried_again_where_that_may_help(
    web: Web, status: int, tries: int, messages: Messages
) -> None:
    web.status = status
    why = delivery.deliver(web.receiver(), NOTICE, pauses=(0, 0))
    assert str(status) in why and "s3cret" not in why
    assert len(web.asked) == tries
    messages.check(why)


def test_a_redirect_is_not_followed(web: Web) -> None:
    other = Web()
    web.status, web.headers = 307, {"Location": other.url}
    assert "307" in delivery.deliver(web.receiver(token="t0ken"), NOTICE)
    other.close()
    assert len(web.asked) == 1 and not other.asked


@pytest.mark.parametrize(
    ("kind", "answer", "facts"),
    [
        ("dingtalk", '{"errcode": 0}', []),
        ("wecom", '{"errcode": 93000, "errmsg": "bad s3cret-path"}', ["93000 bad ***"]),
        ("lark", '{"code": 0}', []),
        ("lark", '{"StatusCode": 0, "StatusMessage": "success"}', []),
        ("lark", '{"code": 19001, "msg": "token"}', ["19001 token"]),
        ("lark", "<html>", ["200"]),
        ("dingtalk", "{}", ["code"]),
        ("slack", "ok", []),
    ],
)
def test_errors_in_the_body_of_a_response(
    web: Web, kind: str, answer: str, facts: list[str], messages: Messages
) -> None:
    web.answer = answer
    found = delivery.deliver(web.receiver(kind, secret=""), NOTICE, pauses=())
    assert bool(found) == bool(facts) and all(fact in found for fact in facts)
    if found:
        messages.check(found)


def test_an_unexpected_error_is_a_failure_to_deliver(web: Web, messages: Messages) -> None:
    odd = NOTICE._replace(tasks=[{"id": object()}])
    why = delivery.deliver(web.receiver(), odd, pauses=(0, 0))
    assert "TypeError" in why
    messages.check(why)
    assert not web.asked


def test_no_server(web: Web) -> None:
    web.close()
    why = delivery.deliver(web.receiver(), NOTICE, pauses=(0,))
    assert "Connection refused" in why and "2" in why


@pytest.mark.parametrize("drips", [False, True])
def test_a_server_that_does_not_answer_is_abandoned(monkeypatch: pytest.MonkeyPatch, drips: bool) -> None:
    """Silent, or a byte at a time, which no time-out of a socket ends."""
    monkeypatch.setattr(delivery, "_RESPONSE_SECONDS", 5.0 if drips else 0.05)
    monkeypatch.setattr(delivery, "_ATTEMPT_SECONDS", 0.2 if drips else 5.0)
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                while not done.wait(0.01):
                    if drips:
                        connection.send(b"H")

        thread = threading.Thread(target=serve)
        thread.start()
        receiver = Receiver(kind="webhook", url=f"http://127.0.0.1:{server.getsockname()[1]}/x")
        why = delivery.deliver(receiver, NOTICE, pauses=())
        done.set()
        thread.join()
    assert ("0.2 s" if drips else "timed out") in why


def test_a_proxy_is_for_the_internet_alone(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Web()
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert delivery.deliver(web.receiver(), NOTICE) == ""
    far = Receiver(kind="webhook", url="http://roost.invalid/x")
    assert delivery.deliver(far, NOTICE) == ""
    proxy.close()
    assert len(web.asked) == 1 and [one.path for one in proxy.asked] == ["http://roost.invalid/x"]


# --- mail -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("certificate"))


@pytest.mark.needs_program("openssl")
@pytest.mark.parametrize("at_once", [False, True])
def test_mail_is_sent_with_tls_only(own: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    server = Mail(own, at_once=at_once)
    assert delivery.deliver(server.receiver(), NOTICE) == ""
    server.close()
    open_words = {line.split()[0].lower() for line, secure in server.said if not secure}
    assert open_words == (set() if at_once else {"ehlo", "starttls"})
    letter = message_from_string(server.letters[0], policy=default)
    assert (letter["Subject"], letter["To"]) == (NOTICE.title, "bob@there.org")
    assert letter["Message-ID"] == "<id.7@roost.here.org>"
    assert letter.get_content().strip() == NOTICE.text


@pytest.mark.needs_program("openssl")
def test_the_certificates_of_a_receiver_count_in_any_environment(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon has the environment of the shell that has started it, and the next one that of another."""
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")
    server = Mail(own, at_once=False)
    assert delivery.deliver(msgspec.structs.replace(server.receiver(), certificates=str(own)), NOTICE) == ""
    server.close()


@pytest.mark.needs_program("openssl")
def test_a_mail_server_with_an_untrusted_certificate_gets_nothing(own: Path, messages: Messages) -> None:
    server = Mail(own, at_once=False)
    why = delivery.deliver(server.receiver(), NOTICE, pauses=(0,))
    server.close()
    assert "self-signed certificate" in why
    messages.check(why)
    assert not any("AUTH" in line for line, _ in server.said) and not server.letters


@pytest.mark.needs_program("openssl")
@pytest.mark.parametrize(
    ("refuses", "fact", "times"),
    [
        ({"STARTTLS": "502 not here"}, "502", 1),
        ({"AUTH": "535 not pass-w0rd"}, "535 not ***", 1),
        ({"RCPT": "550 unknown"}, "bob@there.org", 1),
        ({"DATA": "451 later"}, "451 later", 2),
    ],
)
def test_a_mail_server_that_refuses(
    own: Path,
    monkeypatch: pytest.MonkeyPatch,
    refuses: dict[str, str],
    fact: str,
    times: int,
    messages: Messages,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    server = Mail(own, at_once=False, refuses=refuses)
    found = delivery.deliver(server.receiver(), NOTICE, pauses=(0,))
    server.close()
    assert fact in found and not server.letters
    messages.check(found)
    assert sum(line.lower().startswith("starttls") for line, _ in server.said) == times
    assert all(secure for line, secure in server.said if "AUTH" in line)


@pytest.mark.needs_program("openssl")
@pytest.mark.parametrize("at_once", [False, True])
def test_a_mail_server_with_endless_responses_is_abandoned(
    own: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool, messages: Messages
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    server = Mail(own, at_once=at_once, refuses={"EHLO": "250-on\r\n" * 20_000 + "250 end"})
    why = delivery.deliver(server.receiver(), NOTICE, pauses=(0, 0))
    server.close()
    assert not server.letters
    messages.check(why)


def test_control_characters_of_a_response_are_escaped(web: Web) -> None:
    web.answer = '{"code": 1, "msg": "\\u001b[2Jbad\\u202e"}'
    why = delivery.deliver(web.receiver("lark"), NOTICE, pauses=())
    assert why.endswith(": 1 \\x1b[2Jbad\\u202e")
