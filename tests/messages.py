"""The one snapshot of messages: the texts of errors are in ``messages.json``, and in no test.

A test asserts what programs rely on (the class, ``setting``, ``exit_code``, the values named in the text) and
passes the message to the fixture ``messages``, which compares it with the snapshot. After a message was
changed on purpose, ``make messages`` renews the file; its diff is what the reviewer reads.
"""

from __future__ import annotations

import fcntl
import json
import re
import sys
import tempfile
from pathlib import Path

FILE = Path(__file__).with_name("messages.json")
REPOSITORY = FILE.parent.parent

MASKS = (
    (re.compile(r"\b(pid|process|inode) \d+"), r"\1 <n>"),
    (re.compile(r"\b0x[0-9a-f]{6,}"), "<address>"),
    (re.compile(r"has [\d,]+ bytes; [\d,]+ were written"), "has <n> bytes; <m> were written"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T_]\d\d[-:]\d\d([-:]\d\d([._]\d+)?)?Z?"), "<time>"),
    (re.compile(r"(<tmp-parent>/[A-Za-z_]+)\d+"), r"\1<n>"),  # numbered in the worker's order
    (re.compile(r"(looked in [^\n]*?), <tmp-parent>(, [^\s,]+)*"), r"\1, <folders above>"),
)
"""What differs from run to run in a message that is the same."""


class Messages:
    """The messages of one test, in the order in which it checks them."""

    def __init__(self, test: str, tmp_path: Path, *, update: bool) -> None:
        self._test, self._update = test, update
        self._folders = {
            str(tmp_path): "<tmp>",
            str(tmp_path.parent): "<tmp-parent>",
            str(REPOSITORY): "<repository>",
            sys.prefix: "<python>",
            tempfile.gettempdir(): "<temporary>",
            str(Path.home()): "<home>",
        }
        self._checked: list[str] = []

    def check(self, message: object) -> None:
        """Compares an error (or any text) with the snapshot.

        Raises:
            AssertionError: The snapshot has another text, or none; `make messages` renews it.
        """
        text = str(message)
        for folder, name in self._folders.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(folder)}(?![\w.-])", name, text)
        for pattern, mask in MASKS:
            text = pattern.sub(mask, text)
        number = len(self._checked)
        self._checked.append(text)
        if self._update:
            return
        known = read().get(self._test, [])
        assert number < len(known), f"no snapshot of this message (make messages): {text!r}"
        assert text == known[number], "another message than in tests/messages.json (make messages)"

    def write(self) -> None:
        """Puts the messages of this test in the place of those that the snapshot has of it."""
        if self._update and self._checked:
            renew({self._test: self._checked})


_read: dict[str, list[str]] = {}


def read() -> dict[str, list[str]]:
    """The whole snapshot, read once for each process."""
    if not _read:
        with FILE.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            _read.update(json.loads(file.read()))
    return _read


def renew(found: dict[str, list[str]]) -> None:
    """Writes messages into the snapshot; those of test functions that no longer exist leave it."""
    with FILE.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        sources: dict[str, str] = {}
        known = {**json.loads(file.read()), **found}
        kept = {test: texts for test, texts in sorted(known.items()) if _exists(test, sources)}
        text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
        file.seek(0)
        file.truncate()
        file.write(text)


def _exists(test: str, sources: dict[str, str]) -> bool:
    name, _, function = test.partition("::")
    if name not in sources:
        path = REPOSITORY / name
        sources[name] = path.read_text() if path.is_file() else ""
    return f"def {function.partition('[')[0].rpartition('::')[2]}(" in sources[name]
