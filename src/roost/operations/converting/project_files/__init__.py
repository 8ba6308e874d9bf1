"""The code of the projects that a conversion writes: ``speechain/*.py.txt`` and ``cornernet/*.py.txt``.

The files have another suffix because they import the other trainer, which is not installed here.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent


def project_file(tool: str, name: str) -> str:
    """Returns the text of a file of the project.

    Args:
        tool: speechain or cornernet.
        name: The file's name in the project.
    """
    return (_FOLDER / tool / f"{name}.txt").read_text(encoding="utf-8")
