from __future__ import annotations

from pathlib import Path

import pytest

from roost.analysis.analyzers.script_folders import ScriptFolders
from roost.base.errors import NotFound, Refused


def test_the_first_folder_wins(tmp_path: Path) -> None:
    package, project, more = tmp_path / "package", tmp_path / "project", tmp_path / "more"
    for place in (package / "AnalyzeScripts", project / "AnalyzeScripts", more):
        place.mkdir(parents=True)
    old, new, extra = (
        place / "look.py" for place in (package / "AnalyzeScripts", project / "AnalyzeScripts", more)
    )
    old.write_text("")
    folders = ScriptFolders(package, project, None)
    assert folders.find("look") == folders.find("look.py") == old
    new.write_text("")
    assert folders.find("look") == new and folders.find(str(old)) == old
    extra.write_text("")
    (more / "sub").mkdir()
    (more / "sub" / "deep.py").write_text("")
    both = ScriptFolders(package, project, more)
    assert both.find("look") == extra and [one.name for one in both.scripts()] == ["look", "sub/deep"]
    assert both.find("sub/deep") == more / "sub" / "deep.py"
    code = both.code_folders()
    assert f"{more}/" in code and f"{package}/AnalyzeScripts/" in code and f"{package}/" not in code


def test_a_single_script(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("")
    (tmp_path / "other.py").write_text("")
    folders = ScriptFolders(tmp_path / "package", tmp_path / "project", tmp_path / "one.py")
    for name in ("one", "one.py", str(tmp_path / "one.py")):
        assert folders.find(name) == tmp_path / "one.py"
    assert [one.name for one in folders.scripts()] == ["one"]
    with pytest.raises(NotFound):
        folders.find("other")
    with pytest.raises(Refused):
        folders.find(str(tmp_path / "other.py"))


def test_links_count_by_what_they_lead_to(tmp_path: Path) -> None:
    real, project = tmp_path / "real", tmp_path / "project"
    real.mkdir()
    project.mkdir()
    (real / "look.py").write_text("")
    (tmp_path / "secret.py").write_text("")
    (project / "AnalyzeScripts").symlink_to(real)
    folders = ScriptFolders(tmp_path / "package", project, None)
    assert folders.find("look") == real / "look.py", "the folder itself may be a link"
    (real / "link.py").symlink_to(tmp_path / "secret.py")
    (real / "up").symlink_to(tmp_path)
    for name in ("link", "up/secret", "../secret", str(tmp_path / "secret.py"), "up/real/../secret"):
        with pytest.raises(Refused):
            folders.find(name)
    assert folders.find("up/real/look") == real / "look.py", "it leads back inside"
    assert [one.name for one in folders.scripts()][:1] == ["look"]
