"""What a run begins with, as its config names it and as its package keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, NotFound
from roost.config.sections.init_from import InitSettings
from roost.config.settings import Settings, parse_settings
from roost.package.results.initial_weights import (
    NAME,
    InitialWeights,
    entries,
    expand_path,
    read,
    require,
    write,
)
from tests.messages import Messages

ONE = InitialWeights(
    path="w.pt", found="/x/w.pt", about="a file", sha256="ab", size=3, loaded="1 of 1 tensor", report=["x"]
)


def settings(init_from: Any) -> Settings:
    return parse_settings({"runner": "a.py:A", "dataset": "b.py:B", "max_steps": 1, "init_from": init_from})


def test_written_and_read(tmp_path: Path) -> None:
    write(tmp_path, [ONE, ONE])
    assert read(tmp_path) == [ONE, ONE]


@pytest.mark.parametrize(
    "data", [None, b"", b"[]", b'{"init_from": 3}', b'{"init_from": [{"path": 1}]}', b"\xff"]
)
def test_an_unreadable_report_is_empty(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / NAME).write_bytes(data)
    assert read(tmp_path) == []


def test_each_form_of_the_setting() -> None:
    section = {"path": "b", "strict": False, "checkpoint": "best"}
    assert list(entries(settings(None))) == []
    assert list(entries(settings("a"))) == [("init_from", InitSettings(path="a"))]
    assert list(entries(settings(section))) == [
        ("init_from", InitSettings(path="b", strict=False, checkpoint="best"))
    ]
    assert [key for key, _ in entries(settings(["a", section]))] == ["init_from.0", "init_from.1"]


@pytest.mark.parametrize(
    ("given", "setting", "facts"),
    [
        ({"path": "a", "checkpoint": "newest"}, "init_from.checkpoint", []),
        ({"path": "a", "mapping": {"a.": 3}}, "init_from.mapping", []),
        ({"strict": True}, "init_from.path", []),
        ([{"path": "a", "strickt": True}], None, ["init_from.0", "'strickt'", "'strict'"]),
        (3, "init_from", []),
    ],
)
def test_a_wrong_entry_is_reported(
    given: Any, setting: str | None, facts: list[str], messages: Messages
) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(given)
    messages.check(refused.value)
    assert refused.value.setting == setting and all(fact in str(refused.value) for fact in facts)


def test_a_path_starts_at_the_project(tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "w.pt").touch()
    where = {"init_from.1": "config.yaml:4"}.get
    require(settings(["w.pt", str(tmp_path / "w.pt"), "${package}/w.pt"]), project=tmp_path, where=where)
    with pytest.raises(NotFound) as refused:
        require(settings(["w.pt", "v.pt"]), project=tmp_path, where=where)
    messages.check(refused.value)
    assert refused.value.setting == "init_from.1"
    assert all(fact in str(refused.value) for fact in ("'v.pt'", "config.yaml:4"))


def test_a_home_folder(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expand_path("~/w.pt", "init_from", lambda key: None) == Path("/home/me/w.pt")
    with pytest.raises(ConfigError) as refused:
        expand_path("~nobody-of-this-name/w.pt", "init_from", lambda key: None)
    messages.check(refused.value)
    assert refused.value.setting == "init_from"


@pytest.mark.parametrize("path", ["", " ", "a\0b"])
def test_what_is_no_path(path: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        expand_path(path, "init_from", lambda key: None)
    messages.check(refused.value)
    assert refused.value.setting == "init_from"
