"""An archive that is staged: verified, unpacked once, and never taken as a whole when it is not."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, NotFound, Refused, RoostError
from roost.base.system import mounts, process_identity
from roost.config.sections.staging import StagedArchiveSettings
from roost.project.staging import archive_staging, staging_cache, staging_folder
from roost.project.staging.archive_staging import StagedArchive
from roost.project.staging.staging_cache import StagingCache
from tests.messages import Messages
from tests.mirror import Mirror
from tests.mounting import may_mount
from tests.project.staging.archives import FILES, TARS, content, pack
from tests.waiting import wait_for

STAGE = """
import sys
from pathlib import Path
from roost.config.sections.staging import StagedArchiveSettings
from roost.project.staging import archive_staging
found = archive_staging.stage(StagedArchiveSettings(archive=sys.argv[1]), project=Path())
print(found.folder, flush=True)
sys.stdin.read()
"""
"""Stages an archive, and uses it until its stdin is closed."""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the staged archives; this process uses none of them after the test."""
    monkeypatch.setenv("ROOST_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield staging_folder.staging_folder()
    for fd in staging_cache._held.values():
        os.close(fd)
    staging_cache._held.clear()


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with Mirror({}) as made:
        yield made


def stage(archive: object, **settings: Any) -> StagedArchive:
    known = settings.pop("known", None)
    package = settings.pop("package", None)
    asked = StagedArchiveSettings(archive=str(archive), **settings)
    return archive_staging.stage(asked, project=Path("/"), package=package, sha256=known)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def entries(scratch: Path) -> list[str]:
    return sorted(one.name for one in scratch.iterdir() if one.is_dir()) if scratch.is_dir() else []


def using(archive: object) -> subprocess.Popen[str]:
    """A process that stages an archive, and uses it until it is ended."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", STAGE, str(archive)], text=True, **pipes)


# --- what is staged -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*TARS, "data.tar.zst", "data.zip"])
def test_each_format_is_unpacked_once(
    tmp_path: Path, scratch: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = pack(tmp_path / name)
    sha256 = digest(path)
    found = stage(path)
    assert content(found.folder) == FILES and found.num_files == len(FILES)
    said = capfd.readouterr().err
    assert sha256 in said and "/s: 30 files" in said and "100%" in said
    assert entries(scratch) == [sha256] and Path(found.folder).parent.name == sha256
    path.unlink()
    assert stage(path, sha256=sha256.upper()) == found, "the archive itself is not needed again"
    assert capfd.readouterr().err == ""


def test_the_name_does_not_decide_the_format(tmp_path: Path) -> None:
    path = pack(tmp_path / "data.zip").rename(tmp_path / "data")
    assert content(stage(path).folder) == FILES


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = pack(tmp_path / "data.tar")
    first = stage(path)
    capfd.readouterr()
    assert stage(path) == first and capfd.readouterr().err == ""
    os.utime(path, (1, 1))
    assert stage(path) == first, "the same bytes are the same entry"
    assert "staging" in capfd.readouterr().err


def test_a_zip_file_on_a_network_disk_is_read_once(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pack(tmp_path / "data.zip")
    monkeypatch.setattr(mounts, "file_system_type", lambda path: "fuse.drive")
    assert content(stage(path).folder) == FILES
    assert content(scratch).keys() & {f"{digest(path)}/archive.zip"} == set(), "the copy is removed"


@pytest.mark.parametrize("name", ["data.tar.gz", "data.zip"])
def test_from_a_server_and_a_store(tmp_path: Path, mirror: Mirror, name: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    mirror.files = {name: pack(tmp_path / name).read_bytes()}
    assert content(stage(mirror.url("good") + name).folder) == FILES
    fsspec.filesystem("memory").pipe(f"/bucket/{name}", mirror.files[name])
    assert content(stage(f"memory://bucket/{name}", sha256=digest(tmp_path / name)).folder) == FILES
    assert content(stage((tmp_path / name).as_uri()).folder) == FILES


# --- mistakes -----------------------------------------------------------------------------------------------


def broken(tmp_path: Path, how: str) -> Path:
    """An archive that cannot be staged."""
    noise = random.Random(0).randbytes(300_000)
    if how == "truncated":
        path = pack(tmp_path / "data.tar.gz", {"a": noise})
        os.truncate(path, 200_000)
    elif how == "truncated between two files":
        path = pack(tmp_path / "data.tar", {"a": noise[:512], "b": noise})
        os.truncate(path, 1024)
    elif how == "a zip without its end":
        path = pack(tmp_path / "data.zip", {"a": noise})
        os.truncate(path, 200_000)
    elif how == "encrypted":
        path = pack(tmp_path / "data.zip", {"a": noise})
        data = bytearray(path.read_bytes())
        data[data.rindex(b"PK\x01\x02") + 8] |= 1  # the flag in the index
        path.write_bytes(data)
    elif how == "a bomb":
        path = pack(tmp_path / "data.tar.gz", {"a": bytes(1_000_000)})
    elif how == "a zip bomb":
        path = pack(tmp_path / "data.zip", {"a": bytes(1_000_000)})
    elif how == "too many files":
        path = pack(tmp_path / "data.tar", {str(number): b"" for number in range(50)})
    elif how == "above":
        path = pack(tmp_path / "data.zip", {"../evil": b"1"})
    elif how == "a link out":
        path = tmp_path / "data.tar"
        with tarfile.open(path, "w") as made:
            link = tarfile.TarInfo("out")
            link.type, link.linkname = tarfile.SYMTYPE, "../.."
            made.addfile(link)
    else:
        path = tmp_path / "data.csv"
        path.write_bytes(b"1,2\n" * 1000)
    return path


@pytest.mark.parametrize(
    "how",
    ["truncated", "truncated between two files", "a zip without its end", "encrypted", "a bomb", "a zip bomb",
     "too many files", "above", "a link out", "no archive"],
)  # fmt: skip
def test_a_bad_archive_leaves_nothing(tmp_path: Path, scratch: Path, how: str, messages: Messages) -> None:
    path = broken(tmp_path, how)
    settings = {"max_files": 40, "max_gb": 0.0005}
    with pytest.raises(Refused) as refused:
        stage(path, **settings)
    messages.check(refused.value)
    assert entries(scratch) == [] and content(scratch) == {}
    assert not (tmp_path / "evil").exists()
    with pytest.raises(Refused, match="sha256"):
        stage(path, sha256="0" * 64, **settings)
    assert entries(scratch) == []


def test_the_ratio_counts_from_a_gigabyte_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    zeros = {"data.zip": pack(tmp_path / "data.zip", {"a": bytes(2_000_000)})}
    zeros["data.tar.gz"] = pack(tmp_path / "data.tar.gz", {"a": bytes(2_000_000)})
    limits = archive_staging.UnpackLimits

    def from_a_megabyte(**given: Any) -> Any:
        return limits(**given, ratio_from_bytes=10**6)

    with monkeypatch.context() as patched:
        patched.setattr(archive_staging, "UnpackLimits", from_a_megabyte)
        for path in zeros.values():
            with pytest.raises(Refused, match="times its own size, more than 200 times"):
                stage(path)
        stage(zeros["data.zip"], max_ratio=3000)
    stage(zeros["data.tar.gz"])


@pytest.mark.parametrize("name", ["data.tar", "data.zip"])
def test_other_bytes_are_refused(tmp_path: Path, scratch: Path, name: str, messages: Messages) -> None:
    path = pack(tmp_path / name, {"a": b"1"})
    with pytest.raises(Refused) as wrong:
        stage(path, sha256="f" * 64)
    with pytest.raises(Refused) as changed:
        stage(path, known="e" * 64)
    for error in (wrong.value, changed.value):
        assert error.setting == "data.stage" and digest(path) in error.message
        if name == "data.tar":  # a zip file has the time in it
            messages.check(error)
    assert entries(scratch) == []


def test_what_is_no_archive_at_all(
    tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setitem(sys.modules, "smbclient", None)
    mirror.files = {"data.tar": pack(tmp_path / "data.tar").read_bytes()}
    found: list[RoostError] = []
    for kind, location in (
        (NotFound, tmp_path / "absent.zip"),
        (ConfigError, tmp_path),
        (ConfigError, "/dev/zero"),
        (ConfigError, "smb://host/share/data.zip"),
        (ConfigError, "magic://bucket/data.zip"),
    ):
        with pytest.raises(kind) as error:
            stage(location)
        found.append(error.value)
    for one in found:
        messages.check(one)
    for how, what in (("cut", "ended after"), ("gone", "404")):
        with pytest.raises(RoostError, match=what):
            stage(mirror.url(how) + "data.tar")


def test_a_staging_folder_inside_the_package(tmp_path: Path, messages: Messages) -> None:
    path = pack(tmp_path / "data.tar")
    with pytest.raises(ConfigError) as error:
        stage(path, to=str(tmp_path / "package" / "data"), package=tmp_path / "package")
    messages.check(error.value)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = pack(tmp_path / "data.tar"), archive_staging._read_rest

    def grow(stream: Any) -> None:
        read(stream)
        with path.open("ab") as file:
            file.write(bytes(512))

    monkeypatch.setattr(archive_staging, "_read_rest", grow)
    with pytest.raises(RoostError, match="changed while it was read"):
        stage(path)


@pytest.mark.needs_program("unshare")
def test_a_full_disk(tmp_path: Path, messages: Messages) -> None:
    if not may_mount():
        pytest.skip("needs the right to mount")
    path = pack(tmp_path / "data.tar.gz", {"a": bytes(8_000_000)})
    (tmp_path / "scratch").mkdir()
    script = 'mount -t tmpfs -o size=4m tmpfs "$1"; "$2" -c "$3" "$4" </dev/null; find "$1"/*/ -mindepth 1'
    program = STAGE.replace("found = ", "from roost.base.errors import RoostError\ntry:\n found = ").replace(
        "print(found", "except RoostError as error:\n sys.exit(str(error))\nprint(found"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", tmp_path / "scratch", sys.executable, program, path],
        capture_output=True,
        text=True,
    )
    assert "there is no space for the staged archive" in done.stderr and "ROOST_SCRATCH" in done.stderr
    assert done.stdout == "", "what was unpacked is removed"


# --- several processes, kills -------------------------------------------------------------------------------


def test_a_killed_process_leaves_nothing_whole(tmp_path: Path, scratch: Path, mirror: Mirror) -> None:
    noise = {str(number): random.Random(number).randbytes(50_000) for number in range(60)}
    mirror.files = {"data.tar": pack(tmp_path / "data.tar", noise).read_bytes()}
    process = using(mirror.url("hold") + "data.tar")
    wait_for(mirror.half_sent.is_set)
    wait_for(lambda: len(content(scratch)) > 10)
    process.kill()
    process.communicate()
    [left] = entries(scratch)
    assert left.startswith(".source-")
    found = stage(mirror.url("good") + "data.tar")
    assert content(found.folder) == noise
    assert entries(scratch) == [found.sha256], "what the killed one has left is removed"


def test_others_wait_for_the_one_that_unpacks(tmp_path: Path, scratch: Path, mirror: Mirror) -> None:
    mirror.files = {"data.tar": pack(tmp_path / "data.tar").read_bytes()}
    first = using(mirror.url("hold") + "data.tar")
    wait_for(mirror.half_sent.is_set)
    others = [using(mirror.url("hold") + "data.tar") for _ in range(2)]
    for other in others:
        assert other.stderr is not None
        assert "data.tar: another process is staging it; waiting for that" in other.stderr.readline()
    first.kill()  # the next one begins, and is not stopped by what the killed one has left
    mirror.go_on.set()
    folders = [other.communicate()[0].strip() for other in others]
    first.communicate()
    assert len(set(folders)) == 1 and content(folders[0]) == FILES
    assert len(entries(scratch)) == 1


def test_a_stop_signal_ends_it_at_once(tmp_path: Path, scratch: Path, mirror: Mirror) -> None:
    mirror.files = {"data.zip": pack(tmp_path / "data.zip").read_bytes()}
    process = using(mirror.url("hold") + "data.zip")
    wait_for(mirror.half_sent.is_set)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=100)
    assert process.returncode != 0 and entries(scratch) == []


# --- removal ------------------------------------------------------------------------------------------------


def test_what_is_in_use_is_never_removed(tmp_path: Path, scratch: Path) -> None:
    paths = [pack(tmp_path / f"{name}.tar", {"a": name.encode() * 1000}) for name in "abc"]
    users = [using(path) for path in paths[:2]]
    folders = [Path(user.stdout.readline().strip()) for user in users if user.stdout is not None]
    cache = StagingCache(scratch)
    assert [one.in_use for one in cache.entries()] == [True, True]
    assert cache.make_room(keep_bytes=0) == [] and all(folder.is_dir() for folder in folders)
    for user in users:
        user.communicate()
    times = {paths[1]: 100, paths[0]: 200}
    for path, used in times.items():
        os.utime(scratch / f"{digest(path)}.lock", (used, used))
    stage(paths[2], keep_gb=2.5e-6)
    left = [Path(one.archive).name for one in cache.entries()]
    assert left == ["a.tar", "c.tar"], "the least recently used one is removed"
    assert not (scratch / f"{digest(paths[1])}.lock").exists()
    stage(paths[0], keep_gb=1e-9)
    assert [Path(one.archive).name for one in cache.entries()] == ["c.tar", "a.tar"], "this process uses both"


def test_an_entry_of_an_earlier_boot_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = pack(tmp_path / "data.tar")
    with monkeypatch.context() as earlier:
        earlier.setattr(archive_staging, "boot_id", lambda: "earlier")
        earlier.setattr(staging_cache, "boot_id", lambda: "earlier")
        folder = Path(stage(path).folder)
    (folder / "d0" / "0.bin").write_bytes(b"torn")
    staging_cache._held.clear()  # its process is gone with the boot
    assert process_identity.boot_id()
    assert content(stage(path).folder) == FILES


def test_an_entry_that_lacks_files_is_made_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As a cleaner of /tmp leaves it, which removes old files one by one."""
    path = pack(tmp_path / "data.tar")
    folder = Path(stage(path).folder)
    (folder / "d0" / "3.bin").unlink()
    staging_cache._held.clear()  # as in the next process
    assert content(stage(path).folder) == FILES
    assert f"files are missing in {folder}" in capfd.readouterr().err
    (folder / "made by the user").touch()
    staging_cache._held.clear()
    assert stage(path).folder == str(folder) and capfd.readouterr().err == ""


def test_where_the_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"roost-staged-{os.geteuid()}"
    folder = staging_folder.staging_folder
    assert folder() == tmp_path / "scratch" / name and folder("/data") == Path("/data") / name
    monkeypatch.delenv("ROOST_SCRATCH")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TMPDIR", raising=False)
    assert folder() == tmp_path / "cache" / name
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    assert folder() == tmp_path / "tmp" / name
    kinds = {tmp_path / "tmp": "nfs4", tmp_path / "cache": "ext4"}
    monkeypatch.setattr(mounts, "file_system_type", lambda path: kinds[path])
    assert folder() == tmp_path / "cache" / name, "not on a network disk"
