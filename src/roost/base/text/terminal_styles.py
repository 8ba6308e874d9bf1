"""The styles in a text for a terminal (SGR: bold, colours), taken out of it or given as words.

The words are those of prompt_toolkit, which DLNest uses: ``ansired bold``, ``bg:ansiblue``, ``#00ff87``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_ESCAPE = re.compile(
    r"\x1b(?:\[([0-9;:]*)([@-~])"  # CSI; SGR ends with m
    r"|\[[0-?]*[ -/]*[@-~]"  # any other CSI
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|[ -/]*[0-Z\\^-~])"
)
_MAX_ESCAPE_CHARACTERS = 64
"""What is longer and has no end is text."""
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "gray")
_BRIGHT = ("brightblack", *(f"bright{name}" for name in _COLOURS[1:7]), "white")
_ON = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 5: "blink", 7: "reverse", 8: "hidden", 9: "strike"}
_OFF = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 25: ("blink",), 27: ("reverse",),
        28: ("hidden",), 29: ("strike",)}  # fmt: skip
_CUBE = (0, 95, 135, 175, 215, 255)


class StyleParser:
    """Parses a text piece by piece; a sequence may be split between two pieces.

    ::

        parser = StyleParser()
        parser.feed("\\x1b[1;31mfailed\\x1b[0m: why")      # [("ansired bold", "failed"), ("", ": why")]
    """

    def __init__(self) -> None:
        self._kept = ""
        self._colour = self._ground = ""
        self._marks: dict[str, None] = {}

    def feed(self, piece: str, *, final: bool = False) -> list[tuple[str, str]]:
        """Returns the next pieces of text, each with its style; an empty style is the normal one.

        Args:
            piece: The next piece.
            final: Whether it is the last one.
        """
        text = self._kept + piece
        self._kept = ""
        found: list[tuple[str, str]] = []
        at = 0
        for match in _ESCAPE.finditer(text):
            self._add(found, text[at : match.start()])
            if match[2] == "m":
                self._set(match[1])
            at = match.end()
        rest = text[at:]
        begin = rest.find("\x1b") if not final else -1
        if begin >= 0 and len(rest) - begin <= _MAX_ESCAPE_CHARACTERS:
            rest, self._kept = rest[:begin], rest[begin:]
        self._add(found, rest)
        return found

    @property
    def style(self) -> str:
        """The style of the text that follows."""
        return " ".join(filter(None, (self._colour, self._ground, *self._marks)))

    def _add(self, found: list[tuple[str, str]], text: str) -> None:
        if not text:
            return
        style = self.style
        if found and found[-1][0] == style:
            text = found.pop()[1] + text
        found.append((style, text))

    def _set(self, parameters: str) -> None:
        codes = [int(one or 0) for one in re.split("[;:]", parameters) if len(one) < 6]
        at = 0
        while at < len(codes):
            at += self._apply(codes, at)

    def _apply(self, codes: Sequence[int], at: int) -> int:
        """Applies the code at a place; returns how many codes it takes."""
        code = codes[at]
        if code == 0:
            self._colour = self._ground = ""
            self._marks.clear()
        elif code in _ON:
            self._marks[_ON[code]] = None
        elif code in _OFF:
            for mark in _OFF[code]:
                self._marks.pop(mark, None)
        elif code in (38, 48):
            colour, taken = _extended(codes[at + 1 :])
            if code == 38:
                self._colour = colour
            else:
                self._ground = colour and f"bg:{colour}"
            return 1 + taken
        elif code in (39, 49) or code // 10 in (3, 4, 9, 10):
            name = _named(code)
            if code // 10 in (3, 9):
                self._colour = name
            else:
                self._ground = name and f"bg:{name}"
        return 1


def _named(code: int) -> str:
    names, index = (_BRIGHT if code >= 90 else _COLOURS), code % 10
    return f"ansi{names[index]}" if index < len(names) else ""


def _extended(codes: Sequence[int]) -> tuple[str, int]:
    """Returns a colour of 256, or one of red, green and blue, and how many codes it takes."""
    if len(codes) >= 2 and codes[0] == 5:
        return _of_256(codes[1]), 2
    if len(codes) >= 4 and codes[0] == 2:
        return "#" + "".join(f"{min(one, 255):02x}" for one in codes[1:4]), 4
    return "", len(codes)


def _of_256(index: int) -> str:
    if index < 16:
        return f"ansi{(_COLOURS + _BRIGHT)[index]}"
    if index < 232:
        cell = index - 16
        return "#" + "".join(f"{_CUBE[cell // step % 6]:02x}" for step in (36, 6, 1))
    return "#" + f"{8 + 10 * (min(index, 255) - 232):02x}" * 3


def without_styles(text: str) -> str:
    """Returns a text without styles and other sequences for terminals."""
    return "".join(piece for _, piece in StyleParser().feed(text, final=True))
