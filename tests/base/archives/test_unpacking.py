"""Archives of strangers."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from roost.base.archives import unpacking
from roost.base.archives.safe_folder import UnpackLimits
from roost.base.errors import NotFound, Refused
from tests.messages import Messages


def unpack(path: Path, folder: Path, *, max_bytes: int = 1 << 20, max_files: int = 100) -> Path:
    folder.mkdir()
    unpacking.unpack(path, folder, UnpackLimits(max_bytes=max_bytes, max_files=max_files))
    return folder


def make_tar(path: Path, **entries: bytes) -> Path:
    with tarfile.open(path, "w:gz") as made:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            made.addfile(info, io.BytesIO(content))
    return path


def make_zip(path: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, content in entries.items():
            made.writestr(name, content)
    return path


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_what_leads_out_or_is_too_much_is_refused(tmp_path: Path, name: str, messages: Messages) -> None:
    make = make_zip if name.endswith("zip") else make_tar
    out = make(tmp_path / name, **{"../evil": b"1"})
    with pytest.raises(Refused) as refused:
        unpack(out, tmp_path / "out")
    messages.check(refused.value)
    assert not (tmp_path / "evil").exists()
    bomb = make(tmp_path / f"b-{name}", zeros=bytes(1 << 20))
    with pytest.raises(Refused, match="more than"):
        unpack(bomb, tmp_path / "bomb", max_bytes=1000)
    many = make(tmp_path / f"m-{name}", **{str(n): b"" for n in range(20)})
    with pytest.raises(Refused, match=r"(20|11) files"):
        unpack(many, tmp_path / "many", max_files=10)
    damaged = tmp_path / f"d-{name}"
    damaged.write_bytes(bomb.read_bytes()[:100])
    with pytest.raises(Refused, match="cannot be unpacked"):
        unpack(damaged, tmp_path / "damaged")
    with pytest.raises(NotFound):
        unpack(tmp_path / f"absent-{name}", tmp_path / "absent")


@pytest.mark.parametrize("kind", ["zip", "gz", "bz2", "xz"])
def test_a_damaged_archive(tmp_path: Path, kind: str) -> None:
    content = random.Random(0).randbytes(100_000).hex().encode()
    if kind == "zip":
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archived:
            archived.writestr("main.py", content)
    else:
        path = tmp_path / f"a.tar.{kind}"
        info = tarfile.TarInfo("main.py")
        info.size = len(content)
        with tarfile.open(path, f"w:{kind}") as made:  # type: ignore[call-overload]
            made.addfile(info, io.BytesIO(content))
    data = bytearray(path.read_bytes())
    data[50_000:60_000] = bytes(10_000)
    path.write_bytes(data)
    with pytest.raises(Refused, match="cannot be unpacked") as refused:
        unpack(path, tmp_path / "out")
    assert "\n" not in refused.value.message
    path.write_bytes(b"no archive")
    with pytest.raises(Refused, match="cannot be unpacked") as refused:
        unpack(path, tmp_path / "none")
    assert "\n" not in refused.value.message


def link(name: str, to: str, *, hard: bool = False) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = tarfile.LNKTYPE if hard else tarfile.SYMTYPE, to
    return made


def pipe(name: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = tarfile.FIFOTYPE
    return made


@pytest.mark.parametrize(
    "entries",
    [
        [link("l", "/etc")],
        [link("l", "..")],
        [link("l", "../outside", hard=True)],
        [link("d/up", ".."), link("out", "d/up/..")],
        [link("d/up", "."), link("d/up", "../..")],
        [pipe("p")],
    ],
    ids=["absolute", "up", "hard", "by-another-link", "twice", "pipe"],
)
def test_links_out_of_the_folder_are_refused(tmp_path: Path, entries: list[tarfile.TarInfo]) -> None:
    (tmp_path / "outside").touch()
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as made:
        for entry in [*entries, tarfile.TarInfo("out/evil")]:
            made.addfile(entry)
    with pytest.raises(Refused):
        unpack(path, tmp_path / "in")
    assert not (tmp_path / "evil").exists()


def test_links_inside_and_modes_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as made:
        script = tarfile.TarInfo("sub/run.sh")
        script.size, script.mode = 4, 0o4755
        made.addfile(script, io.BytesIO(b"true"))
        made.addfile(link("same", "sub/run.sh"))
        made.addfile(link("hard", "sub/run.sh", hard=True))
    found = unpack(path, tmp_path / "in")
    assert (found / "same").read_bytes() == (found / "hard").read_bytes() == b"true"
    assert (found / "sub" / "run.sh").stat().st_mode & 0o7777 == 0o755


def test_a_tar_file_that_ends_after_an_entry_of_zeros_is_cut(tmp_path: Path) -> None:
    packed = make_tar(tmp_path / "whole.tar", first=bytes(1024), second=b"2").read_bytes()
    (tmp_path / "cut.tar").write_bytes(gzip.decompress(packed)[: 512 + 1024])
    with pytest.raises(Refused, match="ends too early"):
        unpack(tmp_path / "cut.tar", tmp_path / "out")


def test_a_damaged_header_is_not_the_end_of_a_tar_file(tmp_path: Path) -> None:
    packed = make_tar(tmp_path / "whole.tar", first=b"1", second=b"2", third=b"3").read_bytes()
    data = bytearray(gzip.decompress(packed))
    data[2 * 512] ^= 1  # the header of the second entry
    (tmp_path / "damaged.tar").write_bytes(data)
    with pytest.raises(Refused, match="the header of an entry is damaged"):
        unpack(tmp_path / "damaged.tar", tmp_path / "out")


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_folders_nested_too_deeply_to_be_removed_are_refused(tmp_path: Path, name: str) -> None:
    make = make_zip if name.endswith("zip") else make_tar
    with pytest.raises(Refused, match="301 levels, more than 256"):
        unpack(make(tmp_path / name, **{"a/" * 300 + "x": b"1"}), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_target_of_a_link_cannot_fill_the_memory(tmp_path: Path) -> None:
    entry = zipfile.ZipInfo("link")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(entry, b"a" * 5000)
    with pytest.raises(Refused, match="a target of 5,000 bytes"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
