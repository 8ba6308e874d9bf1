"""Labels of several packages at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import Refused, UsageError
from roost.operations.keeping import label_packages
from roost.package import labels
from tests.operations.packages import package


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        package(tmp_path / "runs", name)


def test_words_name_packages_as_for_plot() -> None:
    label_packages.tag(["runs"], ["x", "y"])
    label_packages.tag(["a"], ["x"], remove=True)
    assert label_packages.used_tags() == [("x", 1), ("y", 2)]
    (found,) = label_packages.star(["tag:x"])
    assert found.path.name == "b" and found.labels.starred
    label_packages.note(["a"], "why")
    assert label_packages.read(["note:why"])[0].path.name == "a"


def test_a_package_in_the_place_of_the_tags_is_refused() -> None:
    with pytest.raises(UsageError, match="is a package, not a tag"):
        label_packages.split_tags("runs/a")
    assert label_packages.split_tags("a, b,") == ["a", "b"]
    for text in ("", ",", "a b", "--x"):
        with pytest.raises(UsageError):
            label_packages.split_tags(text)


def test_a_package_of_a_newer_roost_is_not_touched(tmp_path: Path) -> None:
    request = tmp_path / "runs" / "b" / "request.json"
    request.write_text(request.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(Refused, match="newer roost"):
        label_packages.tag(["runs"], ["x"])
    assert labels.read(tmp_path / "runs" / "a").tags == []  # nor are those before it
