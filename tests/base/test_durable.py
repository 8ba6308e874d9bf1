"""Durable writes succeed or leave no trace: each operation of each function fails once."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roost.base import durable
from tests.messages import Messages

Operation = tuple[str, str]


@pytest.fixture(autouse=True)
def no_fault_left() -> Iterator[None]:
    yield
    durable.fault = None


@pytest.fixture
def operations(tmp_path: Path) -> list[Operation]:
    """(operation, path below tmp_path with staging names as ``*``) of all that is done from here on."""
    seen: list[Operation] = []
    durable.fault = lambda operation, path: seen.append((operation, _plain(path, tmp_path)))
    return seen


def _plain(path: str, root: Path) -> str:
    name = os.path.relpath(path, root) if path.startswith("/") else path
    return "*" if durable.is_staging(Path(name).name) else name


def _fail_at(number: int) -> Callable[[], int]:
    """Makes operation ``number`` fail with ENOSPC; returns a count of the operations."""
    count = 0

    def fault(operation: str, path: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise OSError(errno.ENOSPC, f"{operation} {path}")

    durable.fault = fault
    return lambda: count


def _fds() -> int:
    folder = Path("/proc/self/fd")  # macOS has none: nothing is compared there
    return len(_names(folder)) if folder.is_dir() else 0


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_write_does_each_thing_in_its_order(tmp_path: Path, operations: list[Operation]) -> None:
    durable.write(tmp_path / "a", b"new")
    assert operations == [("open", "*"), ("write", "*"), ("fsync", "*"), ("rename", "a"), ("fsync", ".")]
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_folder_is_synced_before_and_after_its_one_rename(
    tmp_path: Path, operations: list[Operation]
) -> None:
    staging = durable.make_staging_folder(tmp_path / "a")
    digest = durable.write_new(staging / "x", [b"ab", memoryview(b"c"), b""])
    durable.commit_folder(staging, tmp_path / "a")
    assert [name for name, _ in operations] == [
        "mkdir", "open", "write", "write", "fsync", "fsync", "rename", "fsync",
    ]  # fmt: skip
    assert operations[-3:] == [("fsync", "*"), ("rename", "a"), ("fsync", ".")]
    assert (digest.size, digest.sha256) == (3, hashlib.sha256(b"abc").hexdigest())


def test_a_folder_goes_under_another_name_before_anything_of_it_goes(
    tmp_path: Path, operations: list[Operation]
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"1")
    durable.remove_folder(tmp_path / "a")
    assert operations == [("rename", "a"), ("fsync", "."), ("unlink", "*")]
    assert _names(tmp_path) == []


@pytest.mark.parametrize("number", range(1, 7))
def test_a_write_that_fails_leaves_what_stood_there(tmp_path: Path, number: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    fds, count = _fds(), _fail_at(number)
    if number > 5:
        durable.write(path, b"new")
        assert count() == 5  # none is left out above
    else:
        with pytest.raises(OSError, match=r"open|write|fsync|rename"):
            durable.write(path, b"new")
    # After the rename the new data is there; only its name may not be durable yet.
    assert path.read_bytes() == (b"new" if number >= 5 else b"old")
    assert _names(tmp_path) == ["a"]
    assert _fds() == fds


@pytest.mark.parametrize("number", range(1, 8))
def test_a_commit_that_fails_is_taken_back(tmp_path: Path, number: int) -> None:
    fds, count = _fds(), _fail_at(number)
    staging: Path | None = None
    try:
        staging = durable.make_staging_folder(tmp_path / "a")
        durable.write_new(staging / "x", [b"abc"])
        durable.commit_folder(staging, tmp_path / "a")
    except OSError as error:
        assert error.errno == errno.ENOSPC
    else:
        assert number > count()
    durable.fault = None
    assert (tmp_path / "a").exists() == (number > 7)
    durable.sweep(tmp_path)
    assert _names(tmp_path) == []
    assert _fds() == fds


def test_a_commit_never_overwrites(tmp_path: Path, messages: Messages) -> None:
    for occupy in (Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")):
        final = tmp_path / f"a{len(_names(tmp_path))}"
        occupy(final)
        staging = durable.make_staging_folder(final)
        with pytest.raises(FileExistsError) as refused:
            durable.commit_folder(staging, final)
        messages.check(refused.value)
        assert staging.is_dir()


def test_write_new_refuses_a_file_that_exists(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        durable.write_new(tmp_path / "a", [b"new"])
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_chunk_that_cannot_be_made_leaves_no_file(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"1"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        durable.write_new(tmp_path / "a", chunks())
    assert _names(tmp_path) == []


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        durable.write(tmp_path / "a", b"")
        durable.write(tmp_path / "secret", b"", mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_removed_is_left_for_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()

    def fault(operation: str, path: str) -> None:
        if operation == "unlink":
            raise OSError(errno.EIO, path)

    durable.fault = fault
    durable.remove_folder(tmp_path / "a")
    (litter,) = _names(tmp_path)
    assert durable.is_staging(litter)
    durable.fault = None
    durable.sweep(tmp_path)
    assert _names(tmp_path) == []


def test_sweep_takes_only_litter(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "elsewhere").mkdir()
    durable.staging_name(tmp_path / "a").touch()
    durable.make_staging_folder(tmp_path / "b").joinpath("c").touch()
    durable.staging_name(tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    durable.sweep(tmp_path)
    assert _names(tmp_path) == [".hidden", "elsewhere", "kept"]


def test_make_folder_and_rename(tmp_path: Path, operations: list[Operation]) -> None:
    durable.make_folder(tmp_path / "a")
    durable.make_folder(tmp_path / "a", exist_ok=True)
    with pytest.raises(FileExistsError):
        durable.make_folder(tmp_path / "a")
    del operations[:]
    durable.rename(tmp_path / "a", tmp_path / "b")
    assert operations == [("rename", "b"), ("fsync", ".")]
    assert _names(tmp_path) == ["b"]


def test_make_folders_makes_what_is_missing_from_the_top(tmp_path: Path, operations: list[Operation]) -> None:
    (tmp_path / "a").mkdir()
    durable.make_folders(tmp_path / "a" / "b" / "c")
    assert operations == [("mkdir", "a/b"), ("fsync", "a"), ("mkdir", "a/b/c"), ("fsync", "a/b")]
    durable.make_folders(tmp_path / "a" / "b" / "c")
    assert len(operations) == 4


def test_make_folders_does_not_make_the_one_below_which_they_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(FileNotFoundError):
        durable.make_folders(gone / "a" / "b", below=gone)
    assert not gone.exists()
    gone.mkdir()
    monkeypatch.chdir(tmp_path)
    durable.make_folders(Path("gone/a/b"), below=Path("gone"))
    assert (gone / "a" / "b").is_dir()


def test_append_keeps_what_is_there_and_says_what_it_does(
    tmp_path: Path, operations: list[Operation]
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1\n")
    fd = durable.open_append(path)
    durable.append(fd, b"2\n")
    durable.sync(fd)
    os.close(fd)
    assert path.read_bytes() == b"1\n2\n"
    assert operations == [("open", "a"), ("fsync", "."), ("write", f"fd:{fd}"), ("fsync", f"fd:{fd}")]


def test_opening_for_append_leaks_nothing_when_the_folder_cannot_be_synced(tmp_path: Path) -> None:
    fds = _fds()
    _fail_at(2)
    with pytest.raises(OSError, match="fsync"):
        durable.open_append(tmp_path / "a")
    assert _fds() == fds


def test_an_append_that_is_cut_by_a_full_disk_is_an_error(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from roost.base import durable\n"
        "fd = durable.open_append(Path(sys.argv[1]))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5, 5))\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        durable.append(fd, b'12345678')\n"
        "    except OSError as error:\n"
        "        print(error.errno)\n"
    )
    path = tmp_path / "a"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert done.stdout.split() == [str(errno.ENOSPC), str(errno.EFBIG)], done.stderr
    assert path.read_bytes() == b"12345"


def test_a_file_written_piece_by_piece(tmp_path: Path) -> None:
    path = tmp_path / "grows"
    with durable.NewFile(path) as file:
        assert file.write(b"0000") == 4 and file.write(memoryview(b"end")) == 3
        file.overwrite_at(b"42", at=1)
    assert path.read_bytes() == b"0420end"
    with pytest.raises(FileExistsError), durable.NewFile(path):
        raise AssertionError("it began")
    with pytest.raises(ValueError, match="mine"), durable.NewFile(tmp_path / "other") as file:
        file.write(b"half")
        raise ValueError("mine")
    assert [one.name for one in tmp_path.iterdir()] == ["grows"]


def test_one_that_cannot_be_synced_is_removed(tmp_path: Path) -> None:
    def fault(operation: str, path: str) -> None:
        if operation == "fsync":
            raise OSError("it failed")

    durable.fault = fault
    with pytest.raises(OSError, match="it failed"), durable.NewFile(tmp_path / "file") as file:
        file.write(b"x")
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_on_the_disk_is_refused_with_the_numbers(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    free = found.f_bavail * found.f_frsize
    durable.require_space(tmp_path, 1)
    with pytest.raises(OSError, match=rf"{2 * free:,}\b.*[\d,]+.*[\d,]+") as failed:
        durable.require_space(tmp_path, 2 * free)
    assert failed.value.errno == errno.ENOSPC


def test_a_file_that_is_written_soon_waits_for_no_disk_until_it_is_synced(
    tmp_path: Path, operations: list[Operation]
) -> None:
    durable.write_unsynced(tmp_path / "file", b"old")
    durable.write_unsynced(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new" and "fsync" not in {name for name, _ in operations}
    durable.sync_file(tmp_path / "file")
    assert operations[-1] == ("fsync", "file")


@pytest.mark.parametrize("number", range(1, 4))
def test_what_cannot_be_written_soon_leaves_what_stood(tmp_path: Path, number: int) -> None:
    durable.write(tmp_path / "file", b"old")
    _fail_at(number)
    with pytest.raises(OSError, match="Errno 28"):
        durable.write_unsynced(tmp_path / "file", b"new")
    durable.fault = None
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_what_a_killed_write_of_the_same_file_left_is_removed(tmp_path: Path) -> None:
    final = tmp_path / "a.csv"
    old, new = durable.staging_name(final), durable.staging_name(final)
    others = [durable.staging_name(tmp_path / "b.csv"), tmp_path / ".a.csv.tmp-mine", tmp_path / "a.csv"]
    for path in (old, new, *others):
        path.write_text("x")
        os.utime(path, (1, 1))
    os.utime(new)
    durable.discard_abandoned(final)
    assert set(tmp_path.iterdir()) == {new, *others}
