"""The virtual environment of the peers, in a folder of the repository that git ignores."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / ".bench" / "peers"
PEERS = ("lightning", "accelerate", "transformers", "pytorch-ignite")


def is_active() -> bool:
    """Returns whether this process runs in that environment."""
    return Path(sys.prefix) == FOLDER


def make() -> Path:
    """Returns the Python of the environment; creates it with roost, torch of constraints.txt and new peers.

    An existing environment is used as it is; remove the folder for newer peers.

    Raises:
        subprocess.CalledProcessError: pip could not install them.
    """
    python, stamp = FOLDER / "bin" / "python", FOLDER / "installed"
    constraints = REPOSITORY / "constraints.txt"
    requirements = " ".join(PEERS) + "\n" + constraints.read_text()
    if stamp.is_file() and stamp.read_text() == requirements:
        return python
    print(
        f"installing {', '.join(PEERS)} and torch into {FOLDER.relative_to(REPOSITORY)}, which takes minutes",
        flush=True,
    )
    subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-c", constraints, *PEERS, "torch", "-e", REPOSITORY], check=True)
    stamp.write_text(requirements)
    return python


def versions() -> str:
    """Returns the peers with their versions, in one line."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PEERS)
