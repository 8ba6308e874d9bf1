from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from roost.base.errors import NotFound
from roost.serve.http.error_response import HttpError
from roost.serve.routes import run_files
from roost.serve.routes.run_files import list_files, open_file
from tests.messages import Messages


def content(root: Path, path: str) -> bytes:
    return b"".join(open_file(root, path).chunks())


def test_plain_files_are_read_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.txt").write_bytes(b"x" * 600_000)
    found = open_file(tmp_path, "a/b/c.txt")
    assert (found.size, found.name) == (600_000, "c.txt")
    assert b"".join(found.chunks()) == b"x" * 600_000


def test_only_the_bytes_at_opening_are_sent(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one")
    found = open_file(tmp_path, "log")
    with (tmp_path / "log").open("a") as file:
        file.write("two")
    assert b"".join(found.chunks()) == b"one"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "..",
        ".",
        "a/..",
        "../b",
        "a//b",
        "a/",
        "/a",
        "./a",
        "a/./b",
        "a\\b",
        "none",
        "a/none",
        "none/a",
        "file/x",
        "n" * 300,
        "a",
        "link",
        "links/secret",
        "fifo",
        "loop/x",
    ],
)
def test_other_paths_are_not_found(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "file").write_text("x")
    (tmp_path / "b").write_text("secret")
    (root / "link").symlink_to(tmp_path / "b")
    (root / "links").symlink_to(tmp_path)
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "fifo")
    with pytest.raises(NotFound):
        open_file(root, path)


@pytest.mark.parametrize("times", [300, pytest.param(10_000, marks=pytest.mark.soak)])
def test_a_link_put_in_its_place_meanwhile_is_never_followed(tmp_path: Path, times: int) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "good", outside):
        folder.mkdir(parents=True)
    (root / "good" / "file").write_text("ours")
    (outside / "file").write_text("secret")
    (root / "bad").symlink_to(outside)
    (root / "way").symlink_to(outside)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            (root / "good").rename(root / "swap")
            (root / "swap").rename(root / "good")
            (root / "way").unlink()
            (root / "good").rename(root / "way")
            (root / "way").rename(root / "good")
            (root / "way").symlink_to(outside)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        found = set()
        for _ in range(times):
            try:
                found.add(content(root, "way/file"))
            except NotFound:
                continue
    finally:
        is_over.set()
        thread.join()
    assert found <= {b"ours"}


def test_the_list_names_links_and_follows_none(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("four")
    (tmp_path / "up").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    found = [(one.path, one.kind) for one in list_files(tmp_path)]
    assert found == [("fifo", "other"), ("folder", "folder"), ("folder/file", "file"), ("up", "link")]
    assert next(one for one in list_files(tmp_path) if one.path == "folder/file").size_bytes == 4


def test_too_many_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setattr(run_files, "_MAX_FILES", 3)
    for number in range(4):
        (tmp_path / str(number)).touch()
    with pytest.raises(HttpError, match=r"\b3\b") as refused:
        list_files(tmp_path)
    messages.check(refused.value)
