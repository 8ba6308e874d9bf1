"""What README promises, typed as it stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from roost.config import layers
from roost.config.settings import typed
from roost.operations.run import RunRequest, run
from roost.package.package import Package

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str, section: str) -> str:
    """All code blocks of a language in one section of README."""
    body = README.split(f"## {section}\n")[1].split("\n## ")[0]
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", body, re.DOTALL))


@pytest.mark.timeout(300)
def test_the_walk(tmp_path: Path) -> None:
    script = blocks("bash", "A walk").replace("source .venv/bin/activate", "set -euxo pipefail")
    assert script.count("roost ") >= 9
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    packages = sorted((tmp_path / "digits" / "runs").iterdir())
    assert len(packages) == 2
    accuracy = Package.open(packages[0]).records().last()["test/accuracy"]
    assert accuracy >= 0.97
    assert (tmp_path / "digits" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "finished" in result.stdout + result.stderr


def test_the_contract_in_readme_is_python_and_its_config_is_understood(tmp_path: Path) -> None:
    compile(blocks("python", "What you write"), "README.md", "exec")
    text = blocks("yaml", "What you write")
    assert yaml.safe_load(text)["runner"] == "Model/Runner.py:Runner"
    (tmp_path / "config.yaml").write_text(text)
    settings = typed(layers.load(tmp_path / "config.yaml").values)
    assert settings.max_epochs == 30


def test_the_project_may_be_changed_and_deleted_once_run_has_started(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(Path(__file__).parents[2] / "src" / "roost" / "templates" / "clean", project)
    started = run(RunRequest(config=project / "config.yaml", overrides=[f"save_root={tmp_path / 'runs'}"]))
    for file in project.rglob("*.py"):
        file.write_text("raise SystemExit('this must never be imported')")
    shutil.rmtree(project)
    assert started.process is not None and started.process.wait(timeout=60) == 0
    assert Package.open(started.package).state() == "succeeded"
