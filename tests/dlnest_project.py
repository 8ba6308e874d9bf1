"""A small project of DLNest's contract, for tests of the floors without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RUNNER = "from Net import Net\n\n\nclass Runner:\n    pass\n"
VALUES: dict[str, Any] = {
    "save_root": "Saves",
    "runner_name": "Runner",
    "runner_file_path": "./Model/Runner.py",
    "dataset_name": "Digits",
    "dataset_file_path": "Dataset/Dataset.py",
    "life_cycle_name": "LifeCycle",
    "life_cycle_file_path": "LifeCycle.py",
    "other_file_paths": ["./Model/Net.py"],
    "child_jsons": ["model.json"],
    "epochs": 5,
}


def dlnest_project(folder: Path, **values: Any) -> Path:
    """Writes a project; gives its config. A value replaces that of `VALUES`; ``...`` removes it."""
    (folder / "Model").mkdir(parents=True)
    (folder / "Dataset").mkdir()
    (folder / "AnalyzeScripts").mkdir()
    (folder / "Model/Runner.py").write_text(RUNNER)
    (folder / "Model/Net.py").write_text("class Net:\n    pass\n")
    (folder / "Dataset/Dataset.py").write_text("class Digits:\n    pass\n")
    (folder / "LifeCycle.py").write_text("class LifeCycle:\n    pass\n")
    (folder / "AnalyzeScripts/show.py").write_text("def experience(self):\n    pass\n")
    (folder / "model.json").write_text('{"model": {"feats": [1, 64], "lr": 0.1}}')
    kept = {key: value for key, value in {**VALUES, **values}.items() if value is not ...}
    (folder / "root.json").write_text(json.dumps(kept, indent=1))
    return folder / "root.json"
