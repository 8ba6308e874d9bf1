"""Pictures, sound and texts of cases, as parts of a page that needs no other file.

The media of a page are bounded: what does not fit is a link to the file beside the page.
"""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from urllib.parse import quote

from roost.base.text.byte_sizes import format_bytes
from roost.evaluation.reports.number_text import value_text

MAX_MEDIA_BYTES = 24 * 2**20
"""The bytes of all media inside one page; base64 makes a third more of them."""
MAX_FILE_BYTES = 4 * 2**20
"""A larger file is a link."""
_PICTURES = {
    "png": "png", "jpg": "jpeg", "jpeg": "jpeg", "gif": "gif", "webp": "webp", "svg": "svg+xml", "bmp": "bmp",
}  # fmt: skip
_SOUNDS = {"wav": "wav", "mp3": "mpeg", "flac": "flac", "ogg": "ogg", "m4a": "mp4", "opus": "ogg"}
_VIDEOS = {"mp4": "mp4", "webm": "webm"}
_TEXTS = frozenset({"txt", "json", "csv", "md"})
_TEXT_BYTES = 4096


class PageMedia:
    """The media of one page.

    Args:
        root: The folder of the page.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._bytes = 0
        self.num_linked = 0
        """Media that are links because the page has enough."""

    def element(self, cell: Path, file: str, name: str) -> str:
        """Returns the HTML of a file: a picture, a player, a text, or a link to it.

        Args:
            cell: The folder of a cell.
            file: A path below it. Nothing outside is read, wherever the package is from.
            name: The name of the value.
        """
        path = cell / file
        if not path.resolve().is_relative_to(cell.resolve()):
            return f'<span class="lost">{escape(file)} is outside of the cell</span>'
        try:
            size = path.stat().st_size
        except OSError:
            return f'<span class="lost">{escape(path.name)} is missing</span>'
        suffix = path.suffix.lstrip(".").lower()
        if suffix in _TEXTS:
            with path.open("rb") as opened:
                text = opened.read(_TEXT_BYTES).decode(errors="replace")
            return (
                f"<pre>{escape(value_text(text))}</pre>{self._link(path, size) if size > _TEXT_BYTES else ''}"
            )
        if suffix not in _PICTURES and suffix not in _SOUNDS and suffix not in _VIDEOS:
            return self._link(path, size)
        if size > MAX_FILE_BYTES or self._bytes + size > MAX_MEDIA_BYTES:
            self.num_linked += 1
            return self._link(path, size)
        self._bytes += size
        data = base64.b64encode(path.read_bytes()).decode()
        label = escape(f"{name}: {path.name}", quote=True)
        if suffix in _PICTURES:
            return f'<img alt="{label}" src="data:image/{_PICTURES[suffix]};base64,{data}">'
        if suffix in _SOUNDS:
            source = f"data:audio/{_SOUNDS[suffix]};base64,{data}"
            return f'<audio controls preload="metadata" aria-label="{label}" src="{source}"></audio>'
        source = f"data:video/{_VIDEOS[suffix]};base64,{data}"
        return f'<video controls preload="metadata" aria-label="{label}" src="{source}"></video>'

    def _link(self, path: Path, size: int) -> str:
        target = quote(path.relative_to(self._root).as_posix())
        return f'<a href="{escape(target)}">{escape(path.name)}</a> <small>{format_bytes(size)}</small>'
