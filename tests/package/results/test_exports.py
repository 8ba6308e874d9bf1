"""The folder of results that are written without naming a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import Refused, UsageError
from roost.operations.curves.export_records import export_records
from roost.operations.plots.plot import follow, plot
from roost.package import snapshot
from roost.package.package import PackageFolder
from roost.package.results.exports import export_path
from tests.messages import Messages
from tests.operations.packages import package


def test_results_without_a_name_are_in_the_package(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    picture = made.path / "exports" / "curves.png"
    assert plot([made.path]).path == str(picture) and picture.read_bytes().startswith(b"\x89PNG")
    drawn = next(follow([made.path], every_seconds=0.01))
    assert not isinstance(drawn, list) and drawn.path == str(picture)
    table = made.path / "exports" / "records.csv"
    assert export_records(made.path, kind="csv").path == str(table) and table.is_file()
    with pytest.raises(Refused):
        export_records(made.path, kind="csv")
    export_records(made.path, kind="csv", overwrite=True)
    assert not made.changed_files()


def test_a_picture_of_several_needs_a_name(tmp_path: Path, messages: Messages) -> None:
    both = [package(tmp_path / "runs", name).path for name in ("a", "b")]
    with pytest.raises(UsageError) as refused:
        plot(both)
    messages.check(refused.value)


def test_what_is_the_project_s_is_never_written(tmp_path: Path, messages: Messages) -> None:
    source = tmp_path / "project"
    (source / "exports").mkdir(parents=True)
    (source / "exports" / "curves.png").write_text("a picture of the project")
    made = PackageFolder.create(tmp_path / "runs", values={}, selection=snapshot.select(source))
    with pytest.raises(Refused) as refused:
        export_path(made, "curves.png", fix="-o FILE")
    messages.check(str(refused.value).replace(made.path.name, "<name>"))
    assert export_path(made, "other.png", fix="") == made.path / "exports" / "other.png"
    linked = PackageFolder.create(tmp_path / "runs", name="linked", values={})
    (linked.path / "exports").symlink_to(source / "exports")
    with pytest.raises(Refused) as refused:
        export_path(linked, "other.png", fix="-o FILE")
    messages.check(refused.value)
    blocked = PackageFolder.create(tmp_path / "runs", name="blocked", values={})
    (blocked.path / "exports").write_text("")
    with pytest.raises(Refused):
        export_path(blocked, "other.png", fix="-o FILE")


def test_an_ignored_folder_of_this_name_is_not_linked_into_a_package(tmp_path: Path) -> None:
    source = tmp_path / "project"
    (source / "exports").mkdir(parents=True)
    (source / "exports" / "big.csv").write_text("1")
    (source / ".gitignore").write_text("exports\n")
    (source / "a.py").write_text("")
    assert snapshot.select(source).links == {}
