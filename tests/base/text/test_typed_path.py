from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import NotFound
from roost.base.text.typed_path import typed_path
from tests.messages import Messages


def test_home_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert typed_path("~") == Path("/home/me") and typed_path("~/runs") == Path("/home/me/runs")
    assert typed_path(Path("~/runs")) == Path("/home/me/runs")
    assert typed_path("~root/x").is_absolute()
    for other in ("", ".", "runs", "./~runs", "a/~", "/~"):
        assert typed_path(other) == Path(other)


def test_a_file_of_such_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~runs").mkdir()
    assert typed_path("~runs") == typed_path(Path("./~runs")) == Path("~runs")


@pytest.mark.parametrize("text", ["~no-such-user", "~no-such-user/runs"])
def test_a_user_that_does_not_exist(text: str, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        typed_path(text)
    messages.check(refused.value)
