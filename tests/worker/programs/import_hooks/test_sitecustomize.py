"""A program whose PYTHONPATH has the hooks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from roost.worker.programs import import_hooks

HOOKS = Path(import_hooks.__file__).parent


def run(folder: Path, code: str, *, path: str = "") -> list[dict[str, Any]]:
    """Runs code with the hooks in front of a path; returns the reported calls."""
    calls = folder / "calls"
    environment = {
        **os.environ,
        "ROOST_CALLS": str(calls),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HOOKS), path])),
        "HOME": str(folder),
    }
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True)
    return [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []


def test_calls_of_mlflow(tmp_path: Path) -> None:
    code = (
        "import mlflow\nmlflow.set_tracking_uri('sqlite:///m.db')\n"
        "with mlflow.start_run():\n    mlflow.log_metric('loss', 0.5, step=3)\n"
        "    mlflow.log_metrics({'a': 1, 'b': 2.5}, step=4)\n    assert mlflow.active_run()"
    )
    found = run(tmp_path, code)
    assert {"metrics": {"loss": 0.5}, "step": 3} in found
    assert {"metrics": {"a": 1.0, "b": 2.5}, "step": 4} in found


def test_calls_of_wandb_have_its_steps(tmp_path: Path) -> None:
    logged = "[({'a': 1}, {}), ({'a': 2}, {'commit': False}), ({'b': 3}, {}), ({'a': 4}, {'step': 9}), "
    logged += "({'a': 5}, {'step': 12, 'commit': True}), ({'a': 6}, {})]"
    code = (
        "import wandb\nrun = wandb.init(mode='offline', settings=wandb.Settings(console='off'))\n"
        f"for data, given in {logged}:\n    run.log(data, **given)\n"
        "assert run.step == 14\nrun.finish()"
    )
    assert [call["step"] for call in run(tmp_path, code)] == [0, 1, 1, 9, 12, 13]


def test_calls_of_roost_init(tmp_path: Path) -> None:
    code = (
        "import roost\nwith roost.init({}, name='inner', root='runs') as run:\n"
        "    run.log({'loss': 0.5}); run.log({'loss': 0.25}, step=7); assert run.step == 7"
    )
    assert run(tmp_path, code) == [
        {"metrics": {"loss": 0.5}, "step": 1},
        {"metrics": {"loss": 0.25}, "step": 7},
    ]


def test_the_folder_of_a_summary_writer(tmp_path: Path) -> None:
    code = (
        "from torch.utils.tensorboard import SummaryWriter\n"
        "SummaryWriter('logs').close(); SummaryWriter().close()\n"
        "assert 'log_dir' in SummaryWriter.__init__.__doc__"
    )
    first, second = run(tmp_path, code)
    assert first == {"events": str(tmp_path / "logs")} and second["events"].startswith(f"{tmp_path}/runs/")


def test_another_sitecustomize_runs_too(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys; sys.mine = 7")
    assert run(tmp_path, "import sys; assert sys.mine == 7", path=str(other)) == []


def test_a_program_without_these_modules_loads_none() -> None:
    code = "import sys; print(*sorted({'json', 'typing', 'roost', 'threading', 'wandb'} & set(sys.modules)))"
    environment = {"PYTHONPATH": str(HOOKS), "ROOST_CALLS": "/nowhere/calls", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-c", "import sitecustomize;" + code]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
