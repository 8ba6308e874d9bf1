"""Archives of a small data set in each format."""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
from pathlib import Path

FILES = {f"d{number % 3}/{number}.bin": bytes([number]) * (number * 400) for number in range(30)}
TARS = {"data.tar": "w", "data.tar.gz": "w:gz", "data.tbz2": "w:bz2", "data.tar.xz": "w:xz"}


def pack(path: Path, files: dict[str, bytes] = FILES) -> Path:
    """Packs files in the format that the name of the archive says."""
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    elif path.name.endswith(".zst"):
        from backports import zstd

        path.write_bytes(
            zstd.compress(lzma.decompress(pack(path.with_name("inner.tar.xz"), files).read_bytes()))
        )
        path.with_name("inner.tar.xz").unlink()
    else:
        with tarfile.open(path, TARS[f"data{path.name[path.name.index('.') :]}"]) as archive:  # type: ignore[call-overload]
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


def content(folder: str | Path) -> dict[str, bytes]:
    """The files in a folder by their relative names."""
    root = Path(folder)
    return {str(one.relative_to(root)): one.read_bytes() for one in sorted(root.rglob("*")) if one.is_file()}
