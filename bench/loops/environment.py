"""An environment of their own for the peers, below the repository, where git ignores it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / ".bench" / "peers"
PEERS = ("lightning", "accelerate", "transformers", "pytorch-ignite")


def inside() -> bool:
    """Whether this process runs there."""
    return Path(sys.prefix) == FOLDER


def make() -> Path:
    """Its Python; installs the newest peers, beside roost and the torch of constraints.txt, if need be.

    An environment that stands is used as it is; remove the folder for newer peers.

    Raises:
        subprocess.CalledProcessError: pip could not install them.
    """
    python, stamp = FOLDER / "bin" / "python", FOLDER / "installed"
    constraints = REPOSITORY / "constraints.txt"
    wanted = " ".join(PEERS) + "\n" + constraints.read_text()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(
        f"installing {', '.join(PEERS)} and torch into {FOLDER.relative_to(REPOSITORY)}: minutes", flush=True
    )
    subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-c", constraints, *PEERS, "torch", "-e", REPOSITORY], check=True)
    stamp.write_text(wanted)
    return python


def versions() -> str:
    """The peers with their versions, in a line."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PEERS)
