"""URLs of stores: what is one, and that none carries a credential."""

from __future__ import annotations

import pytest

from roost.base.errors import ConfigError, NotFound
from roost.config.values.store_url import parse_url
from roost.package.remote import fsspec_store
from roost.package.remote.remote_copy import open_store
from roost.package.remote.store import clean_reason
from tests.messages import Messages


@pytest.mark.parametrize(
    "text, shown",
    [
        ("s3://bucket/runs/", "s3://bucket/runs"),
        ("abfs://container@account.dfs.core.windows.net/runs", None),
        ("sftp://me@host:2222/home/me/runs", None),
        ("/content/drive/MyDrive/runs/", "/content/drive/MyDrive/runs"),
        ("file:///mnt/runs", "/mnt/runs"),
    ],
)
def test_a_url_is_read(text: str, shown: str | None) -> None:
    assert parse_url(text).text == (shown or text)
    assert parse_url(text).joined("A").split() == (parse_url(text), "A")


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIAABCDEFGHIJKLMNOP:secret@bucket/runs",
        "s3://AKIAABCDEFGHIJKLMNOP@bucket/runs",
        "sftp://me:secret@host/runs",
        "abfs://container/runs?sig=secret",
        "relative/runs",
        "s3://",
        "https://host/runs",
    ],
)
def test_a_url_with_a_credential_is_refused_and_not_repeated(text: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as error:
        parse_url(text)
    assert "secret" not in str(error.value)
    assert "AKIA" not in str(error.value)
    messages.check(error.value)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    def missing(name: str) -> object:
        if name == "fsspec":
            return __import__(name)
        raise ImportError(name)

    monkeypatch.setattr(fsspec_store.importlib, "import_module", missing)
    for url in ("s3://bucket/runs", "gs://bucket/runs", "hf://datasets/me/runs"):
        with pytest.raises(NotFound) as error:
            open_store(parse_url(url))
        messages.check(error.value)


def test_what_a_store_says_is_cleaned() -> None:
    text = "Forbidden: https://me:pw@host/x?X-Amz-Signature=abc&sig=def AKIAABCDEFGHIJKLMNOP\nmore"
    assert clean_reason(ValueError(text)) == "Forbidden: https:***host/x?X-Amz-***&*** *** more"
    azure = "The specified container does not exist.\nRequestId:1\nTime:2\nContent: <?xml?>"
    assert clean_reason(ValueError(azure)) == "The specified container does not exist."
