"""Archives of strangers."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from roost.base.errors import NotFound, Refused
from roost.operations.programs import archive
from tests.messages import Messages


def unpack(path: Path, folder: Path, *, max_bytes: int = 1 << 20, max_files: int = 100) -> Path:
    folder.mkdir()
    return archive.unpack(path, folder, max_bytes=max_bytes, max_files=max_files)


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
def test_files_and_a_single_folder(tmp_path: Path, name: str) -> None:
    make = make_zip if name.endswith("zip") else make_tar
    several = make(tmp_path / name, **{"main.py": b"1", "sub/more.py": b"2"})
    found = unpack(several, tmp_path / "several")
    assert found == tmp_path / "several" and (found / "sub" / "more.py").read_bytes() == b"2"
    single = make(tmp_path / f"single-{name}", **{"repo/main.py": b"3"})
    assert unpack(single, tmp_path / "single") == tmp_path / "single" / "repo"


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_what_leads_out_or_is_too_much_is_refused(tmp_path: Path, name: str, messages: Messages) -> None:
    make = make_zip if name.endswith("zip") else make_tar
    out = make(tmp_path / name, **{"../evil": b"1"})
    with pytest.raises(Refused) as refused:
        unpack(out, tmp_path / "out")
    if name.endswith("zip"):  # the text for tar files is Python's
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


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as made:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        made.addfile(link)
    with pytest.raises(Refused):
        unpack(path, tmp_path / "out")
