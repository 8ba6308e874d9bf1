"""Pictures on a terminal: as half blocks in 24-bit colours, or as sixel where the terminal can show it."""

# Not durable: Pillow reads only

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence

from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from roost.base.errors import RoostError

MAX_BYTES = 16 * 2**20
_MAX_PIXELS = 64 * 10**6
_SIXEL_COLOURS = 128
_SHADES = " .:-=+*#%@"
_SIXEL_TERMINALS = ("foot", "mlterm", "yaft", "contour", "xterm-sixel")


def can_show_sixel(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal is one that is known to show sixel. Inside tmux and GNU screen, which may drop it,
    it is not; ``ROOST_SIXEL=1`` or ``0`` decides otherwise."""
    if (choice := environment.get("ROOST_SIXEL")) in ("0", "1"):
        return choice == "1"
    if "TMUX" in environment or "STY" in environment:
        return False
    if environment.get("TERM_PROGRAM") in ("WezTerm", "mintty", "iTerm.app"):
        return True
    return environment.get("TERM", "").startswith(_SIXEL_TERMINALS)


def fit(size: tuple[int, int], columns: int, rows: int) -> tuple[int, int]:
    """Returns the size in columns and half rows in which a picture fits, with its proportions. A small one is
    enlarged by a whole factor, so that its pixels stay squares.

    Args:
        size: Width and height of the picture.
        columns: Columns that there are.
        rows: Rows that there are, each of two pixels.
    """
    width, height = size
    if width <= columns and height <= 2 * rows:
        factor = max(1, min(columns // width, 2 * rows // height))
        return width * factor, height * factor
    scale = min(columns / width, 2 * rows / height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def half_blocks(data: bytes, columns: int, rows: int) -> list[list[Segment]]:
    """Returns lines of characters ``▀``, whose colours are two pixels.

    Args:
        data: The file.
        columns: The most columns.
        rows: The most lines.

    Raises:
        RoostError: The file is no picture, or too large.
    """
    width, height, pixels = _pixels(data, columns, rows)
    black = (0, 0, 0)
    lines = []
    for y in range(0, height, 2):
        line: list[Segment] = []
        for x in range(width):
            upper = pixels[y * width + x]
            lower = pixels[(y + 1) * width + x] if y + 1 < height else black
            line.append(Segment("▀", Style(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*lower))))
        lines.append(line)
    return lines


def shades(data: bytes, columns: int, rows: int) -> list[list[Segment]]:
    """Returns lines of characters from dark to light, for terminals without colours. Arguments and errors are
    those of `half_blocks`."""
    width, height, pixels = _pixels(data, columns, rows)
    lines = []
    for y in range(0, height, 2):
        text = ""
        for x in range(width):
            found = [pixels[row * width + x] for row in (y, min(y + 1, height - 1))]
            light = sum(0.3 * r + 0.59 * g + 0.11 * b for r, g, b in found) / len(found)
            text += _SHADES[min(len(_SHADES) - 1, int(light / 256 * len(_SHADES)))]
        lines.append([Segment(text)])
    return lines


def sixel(data: bytes, width: int, height: int) -> str:
    """Returns the sequence that draws a picture (DEC sixel: six rows of pixels for each line of characters of
    the sequence).

    Args:
        data: The file.
        width: The most pixels in a row.
        height: The most rows of pixels.

    Raises:
        RoostError: As for `half_blocks`.
    """
    picture = _open(data).convert("RGB")
    picture.thumbnail((width, height))
    indexed = picture.quantize(_SIXEL_COLOURS)
    palette = indexed.getpalette() or []
    pixels, (columns, rows) = indexed.tobytes(), indexed.size
    parts = [f'\x1bPq"1;1;{columns};{rows}']
    for number in sorted(set(pixels)):
        red, green, blue = (round(one * 100 / 255) for one in palette[3 * number : 3 * number + 3])
        parts.append(f"#{number};2;{red};{green};{blue}")
    for top in range(0, rows, 6):
        band = [pixels[row * columns : (row + 1) * columns] for row in range(top, min(top + 6, rows))]
        for number in sorted(set(b"".join(band))):
            bits = [
                sum(1 << at for at, row in enumerate(band) if row[column] == number)
                for column in range(columns)
            ]
            parts.append(f"#{number}{_run_lengths(bits)}$")
        parts.append("-")
    return "".join(parts) + "\x1b\\"


def _run_lengths(bits: Sequence[int]) -> str:
    found, at = [], 0
    while at < len(bits):
        end = at
        while end < len(bits) and bits[end] == bits[at]:
            end += 1
        found.append(f"!{end - at}{chr(63 + bits[at])}")
        at = end
    return "".join(found)


def _pixels(data: bytes, columns: int, rows: int) -> tuple[int, int, list[tuple[int, int, int]]]:
    from PIL import Image

    picture = _open(data)
    width, height = fit(picture.size, columns, rows)
    enlarged = width >= picture.size[0]
    small = picture.convert("RGB").resize(
        (width, height), Image.Resampling.NEAREST if enlarged else Image.Resampling.BOX
    )
    found = small.tobytes()
    return width, height, [(found[at], found[at + 1], found[at + 2]) for at in range(0, len(found), 3)]


def _open(data: bytes):  # type: ignore[no-untyped-def]  # Pillow is imported late
    from PIL import Image, UnidentifiedImageError

    try:
        picture = Image.open(io.BytesIO(data), formats=("PNG", "JPEG", "GIF", "WEBP"))
        if picture.size[0] * picture.size[1] > _MAX_PIXELS:
            raise RoostError(f"the picture has more than {_MAX_PIXELS:,} pixels", fix="save a smaller one")
        picture.load()
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise RoostError(f"the file is no picture that can be shown: {error}") from None
    return picture
