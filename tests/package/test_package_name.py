"""Names of packages: safe as folders, and never shared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import Refused, UsageError
from roost.package import package_name
from roost.package.package import PackageFolder
from tests.messages import Messages

PROCESSES, EACH = 20, 50


def test_a_time_is_local_with_milliseconds() -> None:
    now = time.mktime((2026, 11, 20, 7, 33, 13, 0, 0, -1)) + 0.4815
    assert package_name.time_name(now) == "2026-11-20_07-33-13_481"
    assert package_name.time_name(now - 0.4815) == "2026-11-20_07-33-13_000"


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("a larger model", "a larger model"), ("  spaces ", "spaces"), ("lr/0.1", "lr_0.1"), ("a\\b", "a_b"),
        ("../../etc/passwd", "_.._.._etc_passwd"), (".hidden", "_.hidden"), ("-rf", "_-rf"),
        ("a\nb\tc", "a_b_c"), ("a\0b", "a_b"), ("\x1b[31mred", "_[31mred"), ("\x9b31mred", "_31mred"),
        ("größer 模型", "größer 模型"),
        ("x" * 500, "x" * 120), ("ü" * 500, "ü" * 60), ("bad \udcff byte", "bad _ byte"), ("~", "~"),
    ],
)  # fmt: skip
def test_a_description_becomes_a_folder_name(description: str, name: str) -> None:
    assert package_name.folder_name(description) == name


@pytest.mark.parametrize(
    "description", ["", " ", ".", "..", "...", "-", "--", "_", "/", "\n", "._-", "\udcff"]
)
def test_a_description_without_a_letter_is_refused(description: str, messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        package_name.folder_name(description)
    messages.check(refused.value)


@given(st.text())
def test_every_name_is_one_plain_folder_and_stays_itself(description: str) -> None:
    try:
        name = package_name.folder_name(description)
    except UsageError:
        return
    assert name not in (".", "..") and "/" not in name and name[0] not in ".-"
    assert name.isprintable() or not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in name)
    assert len(os.fsencode(name)) <= 121
    assert package_name.checked_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/a", "a\\b", ".a", "-a", " a", "a ", "a\n", "\0", "x" * 200, "\udcff"]
)
def test_an_unsafe_name_is_refused_with_the_rule(name: str, messages: Messages) -> None:
    with pytest.raises(UsageError) as refused:
        package_name.checked_name(name)
    messages.check(refused.value)
    assert refused.value.setting == "--name"


@pytest.mark.parametrize("name", ["a", "a-b_c.d", "2026", "größer", "a b", "_a", "_-a"])
def test_a_safe_name_is_taken_as_it_is(name: str) -> None:
    assert package_name.checked_name(name) == name


def test_a_taken_name_gets_the_next_number(tmp_path: Path) -> None:
    (tmp_path / "a.b").touch()  # a file takes a name too
    (tmp_path / "aXb-9").mkdir()  # the dot of a name is no pattern
    made = [package_name.make_unique(tmp_path, "a.b").name for _ in range(3)]
    assert made == ["a.b-2", "a.b-3", "a.b-4"]
    (tmp_path / "a.b-7").symlink_to("nowhere")
    assert package_name.make_unique(tmp_path, "a.b").name == "a.b-8"
    assert package_name.make_unique(tmp_path, "new").name == "new"


def test_a_root_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        package_name.make_unique(tmp_path / "nowhere", "a")


CREATE = """
import sys
from pathlib import Path
from roost.package.package import PackageFolder
root, count = Path(sys.argv[1]), int(sys.argv[2])
print(flush=True)
sys.stdin.readline()  # all begin at once
for number in range(count):
    values, request = {"n": number}, {"by": sys.argv[3]}
    package = PackageFolder.create(root, name="one description", values=values, request=request)
    print(package.path.name)
"""


def test_a_thousand_packages_of_one_name_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CREATE, str(tmp_path / "runs"), str(EACH)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    children = [subprocess.Popen([*command, str(n)], text=True, **pipes) for n in range(PROCESSES)]  # type: ignore[call-overload]
    for child in children:
        child.stdout.readline()
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    made = [line for child in children for line in child.communicate()[0].split("\n") if line]
    assert [child.returncode for child in children] == [0] * PROCESSES
    assert len(made) == len(set(made)) == PROCESSES * EACH
    assert sorted(made) == sorted(path.name for path in (tmp_path / "runs").iterdir())
    asked = set()
    for name in made:
        package = PackageFolder.open(tmp_path / "runs" / name)  # complete: request.json is written last
        asked.add((package.request["by"], package.settings["n"]))
        assert package.state == "new" and package.manifest["files"] == {}
    assert len(asked) == PROCESSES * EACH  # none was written over by another


def stage(root: Path, name: str) -> Path:
    with package_name.staged(root, name):
        pass
    return root / name


def test_a_name_that_is_wanted_exactly_is_made_once(tmp_path: Path, messages: Messages) -> None:
    assert stage(tmp_path, "a b").is_dir()
    (tmp_path / "gone").symlink_to("nowhere")
    for name in ("a b", "gone"):
        with pytest.raises(Refused) as refused:
            stage(tmp_path, name)
        messages.check(refused.value)
        assert refused.value.setting == "--name"
    with pytest.raises(Refused, match=f"roost submit continue '{tmp_path}/a b'"):
        stage(tmp_path, "a b")
    with pytest.raises(FileNotFoundError):
        stage(tmp_path / "none", "a")


def test_a_name_is_free_after_its_program_was_killed_or_failed(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        with package_name.staged(tmp_path, "one") as made:
            (made / "args.json").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    with pytest.raises(ZeroDivisionError), package_name.staged(tmp_path, "one"):
        raise ZeroDivisionError
    other = tmp_path / ".one.tmp-mine"
    other.mkdir()
    with package_name.staged(tmp_path, "one") as made:
        (made / "file").touch()
        assert sorted(tmp_path.iterdir()) == sorted([made, other])
    assert (
        sorted(tmp_path.iterdir()) == sorted([tmp_path / "one", other]) and (tmp_path / "one/file").exists()
    )


def test_of_two_that_make_a_name_at_once_the_slower_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="a package of this name exists"), package_name.staged(tmp_path, "one"):
        (stage(tmp_path, "one") / "file").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["one"] and (tmp_path / "one/file").exists()


def test_a_name_that_is_made_of_the_time_is_known() -> None:
    now = package_name.time_name(1_800_000_000.25)
    assert (
        package_name.is_time_name(now)
        and package_name.is_time_name(f"{now}_2")
        and not package_name.is_time_name("2026-11-22")
    )
