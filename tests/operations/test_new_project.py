"""A project from a template."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import NotFound, Refused
from roost.operations.new_project import new_project, templates


@pytest.mark.parametrize("template", ["clean", "digits"])
def test_copies_everything(tmp_path: Path, template: str) -> None:
    created = new_project(tmp_path / "a" / "b", template=template)
    files = {path.relative_to(created.path).as_posix() for path in created.path.rglob("*") if path.is_file()}
    assert files == set(created.files)
    assert {"config.yaml", ".gitignore", "README.md", "Model/Runner.py", "Dataset/Dataset.py"} <= files
    assert not [name for name in files if "__pycache__" in name]
    assert "run" in created.next_command


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    assert new_project(tmp_path, template="clean").path == tmp_path


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(Refused, match="not empty"):
        new_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_unknown_template_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"did you mean 'digits'.*clean, digits"):
        new_project(tmp_path / "a", template="digit")
    assert not (tmp_path / "a").exists()
    assert templates() == ["clean", "digits"]
