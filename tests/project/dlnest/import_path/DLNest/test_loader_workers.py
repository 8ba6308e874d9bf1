"""Loader workers of a project of DLNest's contract that do not begin as a copy of its process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_loader_workers_of_every_start_method_have_the_names(tmp_path: Path, method: str) -> None:
    """They begin with sys.path, and without the finder; an installed DLNest is not used there either."""
    (tmp_path / "DLNest").mkdir()
    (tmp_path / "DLNest" / "__init__.py").write_text("")
    (tmp_path / "spawned_points.py").write_text(
        "from DLNest.Common.RunnerBaseTorch import RunnerBaseTorch\n"
        "import DLNest\n"
        "from torch.utils.data import Dataset\n\n"
        "class Points(Dataset):\n"
        "    def __len__(self):\n        return 2\n\n"
        "    def __getitem__(self, index):\n"
        "        return f'{RunnerBaseTorch.__module__} {DLNest.__spec__.origin}'\n"
    )
    program = (
        "import sys; from torch.utils.data import DataLoader; from roost.project.dlnest import import_names\n"
        "import_names.install(); import spawned_points as found\n"
        f"loader = DataLoader(found.Points(), num_workers=1, multiprocessing_context={method!r})\n"
        "print(list(loader))"
    )
    made = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stderr
    said, found = made.stdout.splitlines()
    assert said.startswith("DLNest is found on this machine, too")
    assert found == str([["roost.project.dlnest.classes.torch_runner roost"]] * 2)
