from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.serve.http import access_token as tokens
from tests.messages import Messages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lab").mkdir(mode=0o700)
    return tmp_path / "lab"


def test_the_token_is_created_once_for_its_owner_only(folder: Path) -> None:
    before = os.umask(0)
    try:
        first = tokens.read_or_create_token(folder)
    finally:
        os.umask(before)
    assert len(first) >= 43 and tokens.read_or_create_token(folder) == first
    assert stat.S_IMODE((folder / tokens.TOKEN_NAME).stat().st_mode) == 0o600
    assert tokens.renew_token(folder) != first == first.strip()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o666, 0o700])
def test_a_token_that_other_users_can_read_is_refused(folder: Path, mode: int) -> None:
    tokens.read_or_create_token(folder)
    (folder / tokens.TOKEN_NAME).chmod(mode)
    with pytest.raises(Refused) as caught:
        tokens.read_or_create_token(folder)
    assert caught.value.fix == f"`chmod 600 {folder / tokens.TOKEN_NAME}`"


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o750])
def test_a_folder_that_other_users_can_list_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(Refused) as caught:
        tokens.read_or_create_token(folder)
    assert caught.value.fix == f"`chmod 700 {folder}`" and not list(folder.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_token_of_another_user_is_refused(folder: Path) -> None:
    tokens.read_or_create_token(folder)
    os.chown(folder / tokens.TOKEN_NAME, 4711, 4711)
    with pytest.raises(Refused, match="4711"):
        tokens.read_or_create_token(folder)


def test_links_and_damaged_tokens_are_refused(folder: Path, tmp_path: Path, messages: Messages) -> None:
    path = folder / tokens.TOKEN_NAME
    (tmp_path / "other").write_text("x" * 43)
    path.symlink_to(tmp_path / "other")
    with pytest.raises(Refused) as refused:
        tokens.read_or_create_token(folder)
    messages.check(refused.value)
    path.unlink()
    for content in ("", "short", "\n"):
        path.write_text(content)
        path.chmod(0o600)
        with pytest.raises(Refused) as refused:
            tokens.read_or_create_token(folder)
        messages.check(refused.value)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(OSError, match=str(path)) as unread:
        tokens.read_or_create_token(folder)
    assert unread.value.errno == errno.EINVAL
