"""Whether a mirror has all records of a package: the sizes of the files of records are kept with its position
when it was closed without an error."""

from __future__ import annotations

from pathlib import Path

from roost.package import sessions

KEY = "complete"
"""The key of the sizes in the file of a mirror's position."""


def record_sizes(package: Path) -> dict[str, int]:
    """Returns the size in bytes of each file of records, by its name."""
    try:
        return {path.name: path.stat().st_size for path in sorted((package / "records").glob("*.jsonl"))}
    except FileNotFoundError:  # one was removed meanwhile
        return {}


def has_all_records(package: Path, note: Path) -> bool:
    """Whether a mirror was closed after it had all records that exist now.

    Args:
        package: The package.
        note: The file with the position of the mirror.
    """
    found = (sessions.load_json(note) or {}).get(KEY)
    return found is not None and found == record_sizes(package)
