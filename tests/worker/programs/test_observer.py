"""The observer of a program, as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from roost.package import records


def test_files_of_the_program_from_before_the_start_of_the_observer_are_read(tmp_path: Path) -> None:
    request = {"format": 1, "kind": "command", "command": [sys.executable], "project": "/", "cwd": "."}
    (tmp_path / "request.json").write_text(json.dumps(request))
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "files": {}}))
    for folder in ("records", "system", "sessions"):
        (tmp_path / folder).mkdir()
    began = time.time() - 60
    for name, seconds in (("mine", 30), ("old", -30)):
        (tmp_path / f"{name}.csv").write_text(f"step,{name}\n0,1.5\n")
        os.utime(tmp_path / f"{name}.csv", (began + seconds, began + seconds))
    argv = [sys.executable, "-P", "-m", "roost.worker.programs.observer", str(tmp_path), "1", "0", str(began)]
    subprocess.run(argv, stdin=subprocess.DEVNULL, check=True)
    assert list(records.fold(tmp_path / "records").series) == ["mine"]
