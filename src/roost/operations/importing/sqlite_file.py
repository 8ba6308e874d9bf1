"""Opens a SQLite file of another system, to be read only."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write.

    Raises:
        FileNotFoundError: There is no such file.
        sqlite3.Error: It cannot be opened.
    """
    if not path.is_file():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        yield database
