"""Where the code of a program comes from, and when it is copied."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.operations.programs.program_source import ProgramSource, open_source
from roost.package import snapshot
from tests.messages import Messages

COMMAND = ("python3", "main.py")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder; and git that works without one."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@b")
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "main.py").write_text("print(1)")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    return folder


def opened(folder: Path, command: Sequence[str] = COMMAND, **given: Any) -> ProgramSource:
    with open_source(command, folder, folder / "runs", **given) as source:
        return source


def files(source: ProgramSource) -> list[str]:
    assert source.selection is not None
    return source.selection.files


def test_a_folder_is_copied_without_its_packages(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    (folder / "runs" / "old").mkdir(parents=True)
    for name in ("main.py", "util.py", "runs/old/x"):
        (folder / name).touch()
    source = opened(folder)
    assert (files(source), source.cwd, source.project) == (["main.py", "util.py"], ".", folder)
    assert opened(tmp_path, source=str(folder)).project == folder


def test_below_a_work_tree_all_of_it_is_copied(tmp_path: Path) -> None:
    code = repository(tmp_path / "code")
    (code / "scripts").mkdir()
    (code / "scripts" / "main.py").touch()
    (code / ".gitignore").write_text("data\n")
    (code / "data").mkdir()
    (code / "data" / "one").touch()
    (tmp_path / "weights.pt").touch()
    command = ["python3", "main.py", "--weights=../../weights.pt", "../main.py", "../../absent", "x=1"]
    source = opened(code / "scripts", command)
    assert source.cwd == "scripts" and files(source) == [".gitignore", "main.py", "scripts/main.py"]
    assert source.selection is not None and source.selection.links == {"data": str(code / "data")}
    outside = f"--weights={tmp_path / 'weights.pt'}"
    assert list(source.command) == ["python3", "main.py", outside, "../main.py", "../../absent", "x=1"]
    assert any("../../weights.pt" in note for note in source.notes)
    assert source.git is not None and source.git["dirty"]


def test_what_runs_write_is_not_shared(tmp_path: Path) -> None:
    code = repository(tmp_path / "code")
    (code / ".gitignore").write_text("data\ncheckpoints\n*.pth\n")
    for name in ("data/1", "checkpoints/last.pt", "model.pth"):
        (code / name).parent.mkdir(exist_ok=True)
        (code / name).touch()
    with (code / "large.ckpt").open("wb") as file:
        file.truncate(20 << 20)
    (tmp_path / "other.py").touch()
    own = [str(code / "main.py"), f"--same={code}/main.py", str(tmp_path / "other.py")]
    command = ["python3", *own, "--eval=checkpoints/last.pt", "checkpoints", f"{code}/checkpoints/last.pt"]
    source = opened(code, command)
    assert files(source) == [".gitignore", "large.ckpt", "main.py", "model.pth"]
    assert source.selection is not None and source.selection.links == {"data": str(code / "data")}
    assert list(source.command) == [
        "python3", "main.py", "--same=main.py", own[2], f"--eval={code}/checkpoints/last.pt", "checkpoints",
        f"{code}/checkpoints/last.pt",
    ]  # fmt: skip
    assert any("left out: checkpoints (ignored, and by its name" in note for note in source.notes)


def test_the_interpreter_of_an_environment_is_that_of_the_folder(tmp_path: Path) -> None:
    code = tmp_path / "code"
    for folder in (code / ".venv", tmp_path / "venv"):
        (folder / "bin").mkdir(parents=True)
        (folder / "pyvenv.cfg").touch()
        (folder / "bin" / "python").symlink_to(sys.executable)
    for name in ("main.py", "true"):
        (code / name).touch()
    for python in (".venv/bin/python", "../venv/bin/python", "./.venv/bin/python"):
        place = code / ".venv" if ".venv" in python else tmp_path / "venv"
        assert list(opened(code, [python, "main.py"]).command) == [str(place / "bin" / "python"), "main.py"]
    assert list(opened(code, ["true", "./main.py"]).command) == ["true", "./main.py"]


def test_the_rule(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    (home / "main.py").touch()
    with pytest.raises(Refused) as refused:
        opened(home)
    messages.check(refused.value)
    with pytest.raises(Refused, match="root folder"):
        opened(Path("/"), ["true"])
    git(home, "init", "--quiet")  # of dotfiles
    (home / "code").mkdir()
    (home / "code" / "main.py").touch()
    assert opened(home / "code").project == home / "code"
    large = tmp_path / "large"
    large.mkdir()
    (large / "main.py").touch()
    for number in range(120):
        with (large / f"{number}.txt").open("wb") as file:
            file.truncate(9 << 20)
    with pytest.raises(Refused) as refused:
        opened(large)
    assert refused.value.fix is not None and "--in-place" in refused.value.fix
    for folder in (home, large):
        source = opened(folder, in_place=True)
        assert (source.selection, source.cwd, source.project) == (None, None, folder)


def test_an_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as made:
        made.writestr("repo/main.py", "print(1)")
    with open_source(COMMAND, tmp_path, tmp_path / "runs", source="code.zip") as source:
        assert files(source) == ["main.py"] and source.selection is not None
        assert source.origin == "code.zip" and source.selection.source("main.py").read_text() == "print(1)"
        fetched = source.selection.project
    assert not fetched.exists()


def test_code_with_a_name_of_the_package_has_a_folder_of_its_own(tmp_path: Path) -> None:
    code = repository(tmp_path / "code")
    (code / "media").mkdir()
    (code / "media" / "logo.png").touch()
    (code / "link.png").symlink_to("media/logo.png")
    (code / "sub").mkdir()
    (code / "sub" / "main.py").touch()
    git(code, "add", ".")
    git(code, "commit", "--quiet", "-m", "two")
    with open_source(COMMAND, tmp_path, tmp_path / "runs", source=f"git+file://{code}") as source:
        assert source.cwd == source.copied_into == "code" and source.selection is not None
        expected = ["code/link.png", "code/main.py", "code/media/logo.png", "code/sub/main.py"]
        assert files(source) == expected
        manifest = snapshot.copy(source.selection, tmp_path / "fetched")
        assert sorted(manifest["files"]) == expected
    (code / ".gitignore").write_text("data/\n")
    (code / "data").mkdir()
    (code / "data" / "x").touch()
    typed = opened(code / "sub")
    assert typed.cwd == "code/sub" and typed.selection is not None
    snapshot.copy(typed.selection, tmp_path / "package")
    assert (tmp_path / "package" / "code" / "link.png").readlink() == Path("media/logo.png")
    assert (tmp_path / "package" / "code" / "data" / "x").exists()
    moved = code.rename(tmp_path / "moved")
    links = {"links": typed.selection.links}
    assert snapshot.renew_links(tmp_path / "package", links, moved, copied_into="code") == []
    assert (tmp_path / "package" / "code" / "data" / "x").exists()


def test_a_commit_of_a_repository(tmp_path: Path) -> None:
    code = repository(tmp_path / "code")
    first = git(code, "rev-parse", "HEAD")
    git(code, "tag", "v1")
    with (code / "large.bin").open("wb") as file:
        file.truncate(12 << 20)
    (code / "main.py").write_text("print(2)")
    git(code, "add", ".")
    git(code, "commit", "--quiet", "-m", "two")
    url = f"git+file://{code}"
    for given, text in ((url, "print(2)"), (f"{url}@{first}", "print(1)"), (f"{url}@v1", "print(1)")):
        with open_source(COMMAND, tmp_path, tmp_path / "runs", source=given) as source:
            assert source.selection is not None
            assert source.selection.source("main.py").read_text() == text
            assert source.git is not None and not source.git["dirty"] and source.origin == given
    newest = opened(tmp_path, source=url)
    assert files(newest) == ["large.bin", "main.py"]  # nothing can be linked to what is removed again


@pytest.mark.parametrize(
    "host", ["ssh://git@example.org/", "https://user:secret@example.org/", "git@example.org:"]
)
def test_the_user_of_an_address_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    repository(tmp_path / "code")
    git(tmp_path / "code", "branch", "a/b")
    for name, value in {"COUNT": "1", "KEY_0": f"url.file://{tmp_path}/.insteadOf", "VALUE_0": host}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    for commit in ("", "@a/b"):
        with open_source(COMMAND, tmp_path, tmp_path / "runs", source=f"git+{host}code{commit}") as source:
            assert files(source) == ["main.py"]
            assert source.origin is not None and "secret" not in source.origin


@pytest.mark.parametrize(
    ("given", "command", "error"),
    [
        ({"source": "absent.zip"}, COMMAND, NotFound),
        ({"source": "main.py"}, COMMAND, Refused),
        ({"source": "~no-such-user/code.zip"}, COMMAND, NotFound),
        ({"source": "git+file:///nowhere"}, COMMAND, Refused),
        ({"source": "git+file://{code}@0123456789012345678901234567890123456789"}, COMMAND, NotFound),
        ({"source": "git+file://{code}"}, ("python3", "absent.py"), NotFound),
        ({"source": "git+--upload-pack=touch evil"}, COMMAND, Refused),
        ({}, ("python3", "absent.py"), NotFound),
        ({}, ("no-such-program",), NotFound),
        ({"source": "code", "in_place": True}, COMMAND, UsageError),
    ],
    ids=lambda one: "-".join(map(str, one)) if isinstance(one, tuple | dict) else one.__name__,
)
def test_bad_sources(
    tmp_path: Path,
    given: dict[str, Any],
    command: tuple[str, ...],
    error: type[RoostError],
    messages: Messages,
) -> None:
    code = repository(tmp_path / "code")
    if "source" in given:
        given = {**given, "source": given["source"].format(code=code)}
    with pytest.raises(error) as refused:
        opened(code, command, **given)
    messages.check(refused.value)
    assert not (code / "runs").exists() and not (code / "evil").exists()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["code", "home"]
